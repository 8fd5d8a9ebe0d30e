"""Samples in README and docs work as printed.

Samples run with the demo server, in a folder that has the files they name; the Python samples of
one page run as one program. Only the port, the key, ids and `/path/to/postroom` are replaced, as a
reader would. `test_reference.py` runs those of docs/reference/api.
"""

from __future__ import annotations

import json
import lzma
import mailbox
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any
from zipfile import ZipFile

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from postroom.config import read_settings
from postroom.operations.agent.finding import split_operators
from postroom.rules.parser import parse_rule
from tests.mails import mail
from tests.servers.postroom import Running, environment, running, write_program
from tests.servers.web import HttpResponse, WebServer

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "reference" / "api"
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if API not in page.parents),
]
ME = "me@postroom.localhost"
ELSEWHERE = {
    "make run": "starts the demo server, as the fixture does",
    "make test": "would run this test again",
    "make bench-search": "takes minutes",
    "postroom --url": "needs a server elsewhere; tests/surfaces/cli has one on this machine",
    "postroom migrate": "needs PostgreSQL and a bucket; see tests/surfaces/cli/test_migration.py",
    "python -m bench.libraries": "takes minutes, and libraries that were not chosen",
    "postroom key create assistant": "needs the account that `postroom account add` adds",
    "curl https://mail.example.com": "needs a public name",
    "postroom account add": "needs a provider; tests/providers/accounts has several",
    ".venv/bin/python hello.py": "the test of samples in Python runs the same lines",
}
"""Shell samples that are not run here, with the reason."""

OTHER_TESTS = {
    "cells.md": "needs several servers, nginx and public names; tests/cells has them",
    "frameworks.md": "tests/packaging/test_frameworks.py",
    "python.md": "tests/client/test_page.py",
    "remote.md": "needs Caddy, nginx and a public name; tests/surfaces/oauth has a proxy",
    "webhooks.md": "tests/pipeline/test_webhook_docs.py",
}
"""Pages whose samples are tested elsewhere, and cells.md."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A code block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def samples(*languages: str) -> list[Any]:
    return [
        pytest.param(sample, id=str(sample))
        for page in PAGES
        for sample in _samples_of(page)
        if sample.language in languages
    ]


def _samples_of(page: Path) -> Iterator[Sample]:
    text = page.read_text("utf-8")
    for block in re.finditer(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield Sample(page, text.count("\n", 0, block.start()) + 1, block[1], dedent(block[2]))


def test_every_sample_has_a_test():
    known = {"sh", "json", "yaml", "toml", "python"}
    found = [sample for page in PAGES for sample in _samples_of(page)]

    others = {s.page.name for s in found if s.language not in known}
    assert others <= OTHER_TESTS.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the files that samples name; the demo server fills `.run`."""
    folder = tmp_path_factory.mktemp("samples")
    one = mail("Invoice 7", "Net 30.", sender="ana@supplier.example", to=ME)
    (folder / "folder").mkdir()
    (folder / "folder" / "two.eml").write_bytes(mail("Two", to=ME))
    (folder / "one.eml").write_bytes(one)
    for name in ("archive.mbox", "last-year.mbox"):
        with closing(mailbox.mbox(folder / name)) as box:
            box.add(one)
    with ZipFile(folder / "export.zip", "w") as archive:
        archive.write(folder / "one.eml", "one.eml")
    with tarfile.open(folder / "old.tar.xz", "w:xz") as archive:
        archive.add(folder / "one.eml", "one.eml")
    (folder / "archive.mbox.xz").write_bytes(lzma.compress((folder / "archive.mbox").read_bytes()))
    with closing(mailbox.Maildir(folder / "Maildir")) as maildir:
        maildir.add(mail("Three", to=ME))
    for name, page in (("invoices", "how-to/rules.md"), ("receipts", "tutorials/gmail.md")):
        found = _samples_of(ROOT / "docs" / page)
        [rule, *_] = [s.text for s in found if s.language == "yaml"]
        (folder / f"{name}.yaml").write_text(re.sub("(?m)^(inbox|account): .*\n", "", rule))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running(folder / ".run", options=["--demo"]) as server:
        (folder / ".run" / "owner.key").write_text(f"{server.key}\n")
        yield server


@pytest.fixture(scope="module")
def receiver() -> Iterator[WebServer]:
    """Receives webhook deliveries in place of https://example.com."""
    with WebServer(lambda _: HttpResponse(204)) as receiver:
        yield receiver


def shell(folder: Path, server: Running, text: str) -> subprocess.CompletedProcess[str]:
    """Run a sample; its ids are those of the previous lines."""
    programs = (write_program(folder / "bin").parent, Path(sys.executable).parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    more = {"PATH": path, "HOME": str(folder), "KEY": server.key}
    more["POSTROOM_WEBHOOK_ALLOW"] = "127.0.0.0/8"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text.replace("http://127.0.0.1:8700", server.url)],
        cwd=folder,
        env=environment(folder / "data", more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def runnable(line: str) -> str:
    """A line without commands that do not end: a server only prints its settings."""
    line = re.sub(r"postroom serve.*", "postroom config", line)
    completed = re.search(r"postroom completion \w+", line)
    return completed[0] if completed else line


@pytest.mark.parametrize(
    "sample", [one for one in samples("sh") if one.values[0].page.name != "cells.md"]
)
def test_a_shell_sample_works(sample: Sample, folder: Path, server: Running, receiver: WebServer):
    prepared = shell(folder, server, f"postroom import one.eml --inbox {ME} --create")
    assert 0 == prepared.returncode, prepared.stderr
    settings, said = "", ""
    text = sample.text.replace("\\\n", "").replace("https://example.com", receiver.url)
    for line in text.splitlines():
        if any(line.startswith(word) for word in ELSEWHERE):
            continue
        if line.startswith("export "):
            settings += line + "\n"
        for kind in ("pln", "whk"):
            [*_, newest] = re.findall(rf"{kind}_[0-9a-z]{{4,}}", said) or [f"{kind}_none"]
            line = re.sub(rf"{kind}_\w+", newest, line)
        ran = shell(folder, server, settings + runnable(line))
        assert 0 == ran.returncode, f"{line}\n{ran.stdout}{ran.stderr}"
        said += ran.stdout + ran.stderr


def programs() -> list[Any]:
    """The samples in Python of each page, as one program."""
    found: dict[Path, str] = {}
    for page in PAGES:
        for sample in _samples_of(page):
            if sample.language == "python" and page.name not in OTHER_TESTS:
                found[page] = found.get(page, "") + sample.text
    return [pytest.param(text, id=page.name) for page, text in found.items()]


@pytest.mark.parametrize("program", programs())
def test_the_python_samples_of_a_page_work(program: str, folder: Path, server: Running):
    """They run twice, as a reader may run them; before there is a client, they must at least
    compile.
    """
    compile(program, "samples", "exec")
    if "postroom.client" in program and find_spec("postroom.client") is None:
        return
    (folder / "hello.py").write_text(program.replace("http://127.0.0.1:8700", server.url))
    for _ in range(2):
        ran = shell(folder, server, ".venv/bin/python hello.py")
        assert 0 == ran.returncode, ran.stderr


@pytest.mark.parametrize("sample", samples("json"))
def test_a_json_sample_is_json(sample: Sample):
    assert json.loads(sample.text)


@pytest.mark.parametrize(
    "sample", [one for one in samples("json") if "mcpServers" in one.values[0].text]
)
async def test_a_client_with_these_settings_gets_tools(
    sample: Sample, folder: Path, server: Running
):
    [settings] = json.loads(sample.text)["mcpServers"].values()

    if "url" in settings:
        tools = await _tools_over_http(settings, server)
    else:
        tools = await _tools_over_stdio(settings, folder)

    assert tools


async def _tools_over_http(settings: dict[str, Any], server: Running) -> list[str]:
    headers = {
        name: value.replace("YOUR_KEY", server.key) for name, value in settings["headers"].items()
    }
    url = settings["url"].replace("http://127.0.0.1:8700", server.url)
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        return [tool.name for tool in (await client.list_tools()).tools]


async def _tools_over_stdio(settings: dict[str, Any], folder: Path) -> list[str]:
    words = [word.replace("/path/to/postroom", str(folder)) for word in settings["args"]]
    env = {name: value for name, value in settings.get("env", {}).items() if "…" not in value}
    started = StdioServerParameters(
        command=str(Path(sys.executable).parent / "postroom"),
        args=words,
        env=environment(folder / "data", env),
    )
    assert settings["command"].endswith("postroom")
    async with Client(started) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("sample", samples("yaml"))
def test_a_yaml_sample_is_a_rule(sample: Sample):
    assert parse_rule(sample.text).then


@pytest.mark.parametrize("sample", samples("toml"))
def test_a_toml_sample_is_a_settings_file(sample: Sample, tmp_path: Path):
    (tmp_path / "postroom.toml").write_text(sample.text)

    found = read_settings({}, folder=tmp_path)

    assert tmp_path == found.settings.data_dir.parent


def test_the_listed_operators_are_understood():
    text = (ROOT / "docs" / "reference" / "agent.md").read_text()
    listed = "".join(re.findall("(?m)^    .*\n", text))
    operators = re.findall(r'\w+:(?:"[^"]*"|\([^)]*\)|\S+)', listed)

    assert len(operators) > 10
    for operator in operators:
        assert (operator, {}) != split_operators(operator, datetime.now(UTC))
