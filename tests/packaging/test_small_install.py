"""An installation without extras is enough for an agent, and names what it lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from postroom.extras import EXTRAS
from tests.mails import mail
from tests.pdf import make_pdf
from tests.servers.postroom import environment, forked_command

ROOT = Path(__file__).parents[2]
INBOX = "me@postroom.localhost"
Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def postroom(small: Path, data: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return _run([str(small / "postroom"), *words], data, env)


def full(data: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The output of the program in this environment, which has all extras."""
    return _run(forked_command(*words), data, env)


def _run(command: list[str], data: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment(data, env),
        cwd=data.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def filled(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a mail that has a PDF."""
    data = tmp_path_factory.mktemp("small") / "data"
    raw = mail("Invoice 7", "Net 30.", to=INBOX, attachments=[("i.pdf", "application/pdf", PDF)])
    (data.parent / "one.eml").write_bytes(raw)
    for words in (("inbox", "create", "--username", "me"), ("import", "one.eml", "--inbox", INBOX)):
        done = postroom(small, data, *words)
        assert 0 == done.returncode, done.stderr
    return data


@pytest.fixture
def with_mail(filled: Path, data: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(filled, data)


PDF = make_pdf("Invoice", ["Amount due: 40 EUR"])


def test_the_table_of_extras_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"]

    assert EXTRAS.keys() | {"all"} == named.keys()
    assert [f"postroom[{','.join(sorted(EXTRAS))}]"] == named["all"]


def test_the_installation_takes_less_than_120_megabytes(small: Path):
    """The size that `make bench-size` prints."""
    used = sum(path.lstat().st_blocks * 512 for path in small.parent.rglob("*"))

    assert used < 120_000_000


def test_no_extra_is_installed(small: Path):
    program = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"
    modules = [module for extra in EXTRAS.values() for module in extra.modules]

    found = subprocess.run(
        [small / "python", "-c", program, *modules], capture_output=True, text=True, check=True
    )

    assert "[]\n" == found.stdout


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    return json.loads(content.text)


async def test_an_agent_finds_mail_and_memories_and_is_told_the_missing_extra(small, with_mail):
    server = StdioServerParameters(
        command=str(small / "postroom"),
        args=["mcp", "--toolsets", "agent"],
        env=environment(with_mail),
    )
    async with Client(server) as client:
        tools = await client.list_tools()
        found = await call(client, "find_mail", q="invoice")
        await call(client, "remember", key="ana", text="Ana pays invoices within 30 days.")
        recalled = await call(client, "recall", q="When does Ana pay invoices?")
        near = await call(client, "find_mail", q="invoice", mode="hybrid")
        read = await call(client, "read_mail", ids=[found["results"][0]["id"]])
        file = read["results"][0]["attachments"][0]["id"]
        refused = await call(client, "read_mail", ids=[file])

    assert 14 == len(tools.tools)
    assert ["Invoice 7"] == [row["subject"] for row in found["results"]]
    assert ["ana"] == [line["key"] for line in recalled["results"]]
    assert "pip install 'postroom[embeddings]'" in recalled["note"]
    assert "pip install 'postroom[embeddings]'" in near["hint"]
    assert ["Invoice 7"] == [row["subject"] for row in near["results"]]
    assert "pip install 'postroom[pdf]'" in json.dumps(refused)


def test_mail_and_memories_of_a_folder_are_the_same_with_and_without_an_index(small, with_mail):
    """A program with numpy and one without it use one folder in turn."""
    mbox = b"".join(
        b"From ana@example.com Thu Jan  1 00:00:00 2026\n%b\n\n"
        % mail(f"Tea {n}", f"Cup {n}", to=INBOX)
        for n in range(700)
    )
    (with_mail.parent / "many.mbox").write_bytes(mbox.replace(b"\r\n", b"\n"))
    with_numpy, without_numpy = partial(full, with_mail), partial(postroom, small, with_mail)
    first = with_numpy("import", "many.mbox", "--inbox", INBOX)
    listed = json.loads(with_numpy("inbox", "list", "-o", "json").stdout)
    [inbox] = [row["id"] for row in listed["results"]]
    for number, program in enumerate([without_numpy, with_numpy] * 3):
        words = "memory", "add", "--key", f"k{number}", "--text", f"Ana likes tea {number}"
        assert 0 == program(*words).returncode

    def answers(program: Program) -> list[str]:
        found = [
            program(*words.split(), "-o", "json", POSTROOM_EMBEDDINGS="none")
            for words in (
                f"message list --inbox-id {inbox} --q cup --limit 3 --offset 650",
                f"message list --inbox-id {inbox} --limit 2 --unread",
                f"message list --inbox-id {inbox} --q tea --mode hybrid --limit 5",
                "memory search tea",
                "memory keywords tea",
            )
        ]
        assert [0] * len(found) == [one.returncode for one in found], found
        return [one.stdout for one in found]

    with_index, without = answers(with_numpy), answers(without_numpy)
    verified = [program("verify") for program in (without_numpy, with_numpy)]

    assert 0 == first.returncode, first.stderr
    assert 700 == json.loads(without[0])["total"]
    assert 3 == len(json.loads(without[0])["results"])
    assert with_index == without
    assert [0, 0] == [one.returncode for one in verified], verified
    assert "pip install 'postroom[index]'" in verified[0].stdout
    assert "postroom[index]" not in verified[1].stdout


WITHOUT_NUMPY = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "tests.plugins.without_numpy",
    "-k",
    "rest",
)


def test_the_contracts_of_searching_hold_without_numpy():
    contracts = [f"tests/contract/test_{name}.py" for name in ("message_search", "memory_search")]

    done = subprocess.run(
        [*WITHOUT_NUMPY, *contracts], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stdout[-4000:]
    assert " passed" in done.stdout


SETTINGS = {
    "index": ("POSTROOM_EMBEDDINGS", "https://embeddings.example/v1"),
    "postgres": ("POSTROOM_DATABASE_URL", "postgresql://postroom:secret@127.0.0.1:1/postroom"),
    "s3": ("POSTROOM_BLOBS_URL", "s3://bucket/prefix"),
    "s3 for SES": ("POSTROOM_SES_BUCKET", "mail-for-us"),
}


@pytest.mark.long_cases("mcp-postgres", "mcp-s3", "mcp-s3 for SES")
@pytest.mark.parametrize("extra", SETTINGS)
@pytest.mark.parametrize("command", ["inbox list", "mcp"])
def test_a_setting_names_the_extra_that_it_needs(small, data, extra, command):
    name, value = SETTINGS[extra]

    refused = postroom(small, data, *command.split(), **{name: value})

    assert 2 == refused.returncode
    assert f"{name}: " in refused.stderr
    assert f"pip install 'postroom[{extra.split()[0]}]'" in refused.stderr
    assert "secret" not in refused.stderr


def test_an_invalid_setting_is_reported_before_a_missing_extra(small, data):
    refused = postroom(small, data, "inbox", "list", POSTROOM_DATABASE_URL="mysql://x")

    assert "must be like postgresql://" in refused.stderr


def test_doctor_reports_that_memories_are_searched_by_words_only(small, with_mail):
    told = postroom(small, with_mail, "doctor", "-o", "json")

    assert "pip install 'postroom[embeddings]'" in told.stdout
