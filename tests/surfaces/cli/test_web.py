"""`postroom web` and `serve` print a sign-in link, and only to a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.servers.ports import free_port
from tests.servers.postroom import create_store, environment, forked_command, running

LINK = re.compile(r"http\S+/signin\?link=[\w-]{43}")


def on_terminal(data: Path, *words: str, until: re.Pattern[str] | None = None, **env: str) -> str:
    """The output of a command on a terminal; with *until*, it is stopped after that text."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        forked_command(*words),
        env=environment(data, env),
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65_536):
            said += chunk
            if until is not None and until.search(said.decode()):
                process.terminate()
    except OSError:  # EIO: the other side is closed
        pass
    process.wait(60)
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def sign_in(url: str, link: str) -> httpx2.Response:
    secret = parse_qs(urlsplit(link).query)["link"][0]
    return httpx2.post(f"{url}/signin", data={"link": secret}, headers={"Origin": url})


def test_the_link_signs_in_to_the_running_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        port = server.url.rpartition(":")[2]
        (link,) = LINK.findall(on_terminal(data, "web", "--port", port))

        assert link.startswith(server.url)
        response = sign_in(server.url, link)
        assert (303, "/") == (response.status_code, response.headers["location"])
        page = httpx2.get(server.url, headers={"Cookie": response.headers["set-cookie"]})
        assert 200 == page.status_code
        ended = subprocess.check_output(forked_command("web", "--sign-out"), env=server.env)
        assert b"Sessions ended: 1\n" == ended
        page = httpx2.get(server.url, headers={"Cookie": response.headers["set-cookie"]})
        assert 303 == page.status_code


def test_the_link_has_the_public_url(tmp_path: Path) -> None:
    create_store(tmp_path / "data")
    said = on_terminal(tmp_path / "data", "web", POSTROOM_PUBLIC_URL="https://mail.example")

    assert ["https://mail.example/signin"] == [
        link.partition("?")[0] for link in LINK.findall(said)
    ]


def test_the_link_is_printed_to_a_terminal_only(forked) -> None:
    ran = forked("web")

    assert (4, "") == (ran.code, ran.out)
    assert "terminal" in ran.err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_prints_a_link_when_it_starts_on_a_terminal(tmp_path: Path, workers: str) -> None:
    words = ("serve", "--port", str(free_port()), "--smtp", "none", "--workers", workers)

    said = on_terminal(tmp_path / "data", *words, until=re.compile("Ctrl-C"))

    assert 1 == len(LINK.findall(said))
    assert all(len(line) <= 100 for line in said.splitlines() if "link=" in line)


def test_a_server_prints_no_link_to_a_file(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        assert [] == LINK.findall(server.log)
        assert "`postroom web`" in server.log
