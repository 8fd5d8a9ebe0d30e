"""`serve` opens the installation, shows the key once, and can create a demo."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom.surfaces.cli.session import Session
from tests.pdf import make_pdf
from tests.servers.postroom import environment, forked_command


@contextmanager
def serving(data: Path, *words: str, **env: str) -> Iterator[str]:
    """Start a server on a free port; gives its output once it listens."""
    process = subprocess.Popen(
        forked_command("serve", "--port", "0", *words),
        env=environment(data, env),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    patience = threading.Timer(300, process.kill)
    patience.start()
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        assert process.poll() is None, process.stderr.read()
        yield "".join(said)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert 0 == process.returncode
        assert err in ("", f"note: creating a new store in {data}\n")
    finally:
        patience.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def key_in(said: str) -> str:
    return re.search(r"key +(.+)", said)[1]


def key_of(data: Path) -> str:
    return (data / "owner.key").read_text().strip()


def curl_in(said: str) -> list[str]:
    """The words of the printed curl command, as a shell parses them."""
    words = shlex.split(re.search(r"try it +(.+)", said)[1])
    return [re.sub(r"\$\(cat (.+)\)", lambda m: Path(m[1]).read_text().strip(), w) for w in words]


def clients_in(said: str) -> list[dict[str, object]]:
    lines = [line for line in said.splitlines() if "mcpServers" in line]
    return [json.loads(line)["mcpServers"]["postroom"] for line in lines]


def fetch(curl: list[str]) -> dict[str, object]:
    """The result of the curl command."""
    assert ["curl", "-s"] == curl[:2]
    headers = dict(word.split(": ", 1) for word in curl if word.startswith("Authorization"))
    with urllib.request.urlopen(urllib.request.Request(curl[-1], headers=headers)) as answer:
        return json.load(answer)


def test_the_key_is_written_to_a_private_file_if_output_is_redirected(data):
    with serving(data) as first:
        assert 0 == fetch(curl_in(first))["total"]
    with serving(data) as second:
        assert 0 == fetch(curl_in(second))["total"]
    key = key_of(data)
    (data / "owner.key").unlink()
    with serving(data) as third:
        pass

    assert 0 == (first + second + third).count("pk_")
    assert f"in {data}/owner.key, which only you can read" == key_in(first) == key_in(second)
    assert "postroom key reset" in key_in(third)
    assert "owner" == Session(data=str(data)).run(lambda app: app.authenticate(key)).key_id


def test_a_postgresql_installation_is_offered_over_http_only(data, database_url):
    """A stdio process knows the folder and not the database: it would open another installation."""
    with serving(data, POSTROOM_DATABASE_URL=database_url) as said:
        [over_http] = clients_in(said)

    assert "http" == over_http["type"]
    assert database_url not in said


def test_the_demo_prints_lines_that_work_and_the_same_key_again(data, built_guide):
    with serving(data, "--demo") as first:
        found = fetch(curl_in(first))
        [over_stdio, over_http] = clients_in(first)
        for title in ("API docs", "guide"):
            address = re.search(rf"{title} +(\S+)", first)[1]
            with urllib.request.urlopen(address) as page:
                assert 200 == page.status
    with serving(data, "--demo") as second:
        again = fetch(curl_in(second))

    assert found["total"] >= 1
    assert found == again
    assert f"in {data}/owner.key, which only you can read" == key_in(first) == key_in(second)
    assert 0 == (first + second).count("pk_")
    assert Path(over_stdio["command"]).is_absolute()
    arguments = ["mcp", "--toolsets", "agent", "--data", str(data)]
    assert arguments == over_stdio["args"][-5:]
    assert over_http["url"].endswith("/mcp")
    assert {"Authorization": "Bearer $KEY"} == over_http["headers"]
    assert 0o600 == (data / "owner.key").stat().st_mode & 0o777


def test_the_demo_holds_whole_conversations_and_is_seeded_once(data, postroom):
    with serving(data, "--demo"):
        pass
    before = postroom("message", "list", inbox_of(postroom), "-o", "json").json
    threads = postroom("thread", "list", "-o", "json").json["results"]
    (data / "demo.done").unlink()
    with serving(data, "--demo"):
        pass
    after = postroom("message", "list", inbox_of(postroom), "-o", "json").json

    assert before == after
    assert 15 <= before["total"] <= 25
    assert [3, 4, 4] == sorted(t["message_count"] for t in threads)[-3:]
    assert {"inbound", "outbound"} == {row["direction"] for row in before["results"]}
    assert 0 == postroom("verify").code


def inbox_of(postroom) -> str:
    [inbox] = postroom("inbox", "list", "-o", "json").json["results"]
    assert "demo@postroom.localhost" == inbox["address"]
    return str(inbox["id"])


@pytest.mark.parametrize(
    ("q", "subject"),
    [
        ("order-48213.pdf", "Your order 48213 is confirmed"),
        ("LIGHTHOUSE THAT KEPT", "The Slow Web, issue 118: a lighthouse and its weather"),
        ("482913", "Your sign-in code"),
        ("いぶし銀", "瓦の見本について"),
        ("KÖNIGSTRASSE", "Straßenfest am Samstag: wer bringt was mit?"),
        ("room birch", "Re: Planning on Thursday?"),
        ("HH-2026-0117.pdf", "Invoice HH-2026-0117"),
        ("bank has changed", "Invoice HH-2026-0117: our bank details have changed"),
    ],
)
def test_the_demo_has_something_of_every_kind(demo, q, subject):
    found = demo("search", q, "-o", "json").json

    assert subject in {row["subject"] for row in found["results"]}


def test_the_demo_has_held_replies_of_an_agent_rules_and_memories(demo):
    outbox = demo("outbox", "list", "-o", "json").json["results"]
    rules = demo("rule", "list", "-o", "json").json["results"]
    label = demo("search", "issue 118", "-o", "json").json["results"][0]["labels"]

    assert ["held", "held"] == [mail["status"] for mail in outbox]
    assert "a misleading sender" in outbox[0]["recipients"][0]["detail"]
    assert (["Newsletters", "Receipts"], ["Newsletters"]) == ([r["name"] for r in rules], label)
    assert 4 == demo("memory", "list", "-o", "json").json["total"]
    assert 1 == demo("draft", "list", "-o", "json").json["total"]
    assert 0 == demo("verify").code


@pytest.fixture
def demo(data, postroom):
    from postroom.surfaces.cli.commands.demo import seed_demo

    Session(data=str(data)).run(seed_demo, creates=True)
    return postroom


def test_a_demo_keeps_the_existing_key(data):
    with serving(data):
        key = key_of(data)
    (data / "owner.key").unlink()
    with serving(data, "--demo") as second:
        assert "postroom key reset" in key_in(second)

    assert "owner" == Session(data=str(data)).run(lambda app: app.authenticate(key)).key_id


def test_a_reset_key_is_the_one_the_demo_shows(data, postroom):
    with serving(data, "--demo"):
        pass
    postroom("key", "reset")
    key = key_of(data)
    with serving(data, "--demo") as said:
        assert 1 <= fetch(curl_in(said))["total"]

    assert key == key_of(data)


def test_a_key_from_the_settings_is_not_printed(data):
    key = "canary-0123456789-of-the-owner"
    with serving(data, "--demo", POSTROOM_API_KEY=key) as said:
        assert "canary" not in said
        curl = [w.replace("$POSTROOM_API_KEY", key) for w in curl_in(said)]
        assert 1 <= fetch(curl)["total"]


def test_no_auth_needs_no_key(data):
    with serving(data, "--no-auth") as said:
        assert 0 == fetch(curl_in(said))["total"]

    assert "Authorization" not in said


def test_no_auth_serves_only_loopback(forked, data):
    result = forked("serve", "--no-auth", "--host", "0.0.0.0", "--port", "0")

    assert 2 == result.code
    assert "--no-auth works on loopback only" in result.err


def test_a_port_in_use_is_reported_and_nothing_is_created(forked, data):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = forked("serve", "--port", port)

    assert 5 == result.code
    assert f"error: port {port} of 127.0.0.1 is in use" in result.err
    assert "--port" in result.err
    assert not data.exists()


@pytest.mark.parametrize(
    "words",
    [["--port", "99999"], ["--toolsets", "inbxo"], ["--host", "no such"], ["--host", "192.0.2.1"]],
)
@pytest.mark.parametrize("name", ["serve"])
def test_invalid_options_of_serve_are_refused(forked, name, words):
    result = forked(name, "--port", "0", *words)

    assert 2 == result.code
    assert result.err.splitlines()[-1].startswith("error: ")


def test_mcp_refuses_an_invalid_key(forked, inbox):
    result = forked("mcp", "--key", "pk_none")

    assert (4, "") == (result.code, result.out)
    assert "unknown key" in result.err
    assert "POSTROOM_KEY" in result.err


def test_mcp_writes_only_the_protocol_to_stdout(process, inbox):
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }

    result = process("mcp", "--read-only", stdin=json.dumps(hello).encode() + b"\n")

    [answer] = map(json.loads, result.out.splitlines())
    assert (0, "") == (result.code, result.err)
    assert "postroom" == answer["result"]["serverInfo"]["name"]


def test_a_pdf_of_the_demo_is_readable():
    pdf = make_pdf("Title (1)", ["Line \\ one", "Zwei ä"])

    table = int(re.search(rb"startxref\n(\d+)", pdf)[1])
    places = [int(place) for place in re.findall(rb"(\d{10}) 00000 n", pdf)]
    assert pdf[table:].startswith(b"xref\n0 7\n")
    assert [b"%d 0 obj" % n for n in range(1, 7)] == [pdf[p : p + 7] for p in places]
    assert rb"(Title \(1\))" in pdf
