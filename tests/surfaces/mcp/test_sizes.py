"""Every answer fits a model's context, whatever mail has arrived."""

from __future__ import annotations

from base64 import b64encode
from shutil import copytree
from typing import Any

import pytest

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.event import FIRST
from postroom.model.key import OWNER
from postroom.operations.memories import memory_add
from postroom.surfaces.mcp.call_tool import as_text
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.mails import deliver, mail, new_inbox

MOST, MAX_BY_DEFAULT = 100_000, 40_000
NASTY = '\x01"\\\u2028'


def raw(headers: str, body: str = "Hello.", *, kind: str = "text/plain") -> bytes:
    """A mail written by hand, since no library would write it."""
    lines = f"Content-Type: {kind}; charset=utf-8\nContent-Transfer-Encoding: 8bit\n{headers}"
    return f"{lines}\n\n{body}".encode()


def many(name: str, count: int) -> str:
    people = (
        f'"{NASTY} {n} {"x" * 100}" <p{n}-{"y" * 40}@{"z" * 50}.example>' for n in range(count)
    )
    return f"{name}: " + ",\n ".join(people)


def parts(count: int) -> str:
    files = (
        f"--b\nContent-Type: application/{'t' * 60}\n"
        f'Content-Disposition: attachment; filename="{n}{"f" * 240}"\n\nx\n'
        for n in range(count)
    )
    return "".join(files) + "--b--\n"


HOSTILE = {
    "500 recipients": raw(f"From: a@b.example\nSubject: x\n{many('To', 500)}\n{many('Cc', 500)}"),
    "500 attachments": raw(
        "From: a@b.example\nSubject: x", parts(490), kind="multipart/mixed; boundary=b"
    ),
    "a subject of 60 KB": raw(f"From: a@b.example\nSubject: {'long words ' * 5_500}"),
    "a name of 60 KB": raw(f'From: "{"name " * 12_000}" <a@b.example>\nSubject: x'),
    "5,000 references": raw(
        "From: a@b.example\nReferences: "
        + "\n ".join(f"<{n}@{'r' * 30}.example>" for n in range(5_000))
    ),
    "many headers": raw("\n".join(f"X-{n}: {'v' * 200}" for n in range(900))),
    "text that doubles when written": raw("Subject: x", '"\\' * 100_000),
    "control characters": raw("Subject: \x01\x02\x03" * 100, "\x01" * 50_000),
    "a long text": raw("Subject: x", "word " * 200_000),
    "long HTML": raw("Subject: x", "<p>&quot;word&quot;</p>" * 20_000, kind="text/html"),
    "quotes of quotes": raw("Subject: Re: x", "".join(f"{'>' * n} q\n" for n in range(1_000))),
    "nothing": b"\x00",
}


EVERYTHING = (
    f"description: {'long ' * 300}\nwhen: [{{size_bytes: {{greater_than: 0}}}}]\n"
    f"then: [{', '.join(f'{{apply_label: {name * 120}}}' for name in 'abcdefghijklmnop')}]"
)
"""A rule with many actions on every message."""


@pytest.fixture(scope="module")
async def filled(tmp_path_factory):
    """A data folder with large and hostile mail: the folder, the inbox and its mail."""
    folder = tmp_path_factory.mktemp("sizes") / "data"
    settings = read_settings({"POSTROOM_DATA_DIR": str(folder)}).settings
    async with open_app(settings) as opened:
        return folder, *await fill(opened.context(OWNER))


@pytest.fixture
async def app(request, tmp_path):
    """An open copy of that folder, for each test that uses `full`."""
    if "full" in request.fixturenames:
        copytree(request.getfixturevalue("filled")[0], tmp_path / "data")
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path / "data")}).settings
    async with open_app(settings) as opened:
        yield opened


@pytest.fixture
def full(filled):
    return filled[1:]


async def fill(ctx):
    inbox = await new_inbox(ctx)
    mails = [
        f"Message-ID: <{number}@x.example>\n".encode() + content
        for number, content in enumerate(HOSTILE.values())
    ]
    for number in range(100):
        text = NASTY * 10_000 if number == 0 else f"{NASTY} word {'x' * 400} {number}"
        tags = [f"{'t' * 60}{place}" for place in range(20)]
        change = {"key": str(number), "text": text, "summary": "s" * 200, "tags": tags}
        await call(ctx, memory_add, change)
        await call(ctx, memory_add, {**change, "text": text[:-1]})
    return inbox, [await deliver(ctx, inbox, content) for content in mails]


def greedy(
    inbox_id: str, message_id: str, thread_id: str, rule_id: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """For each tool that reads, arguments that request as much as possible."""
    message, thread = {"message_id": message_id}, {"thread_id": thread_id}
    page = {"inbox_id": inbox_id, "limit": 100}
    extras = dict.fromkeys(("include_html", "include_headers", "include_quoted"), True)
    long = {**message, "max_chars": 100_000}
    return {
        "list_inboxes": [{"limit": 100}],
        "list_messages": [page, {**page, "mailbox": "*", "q": "x"}],
        "search_messages": [page, {**page, "q": "o"}],
        "get_message": [
            message,
            long,
            long | extras,
            long | extras | {"include_attachments": True},
        ],
        "list_threads": [page],
        "get_thread": [thread, {**thread, "limit": 100, "include_text": True}],
        "list_attachments": [page, message, thread],
        "list_drafts": [{"limit": 100}],
        "list_identities": [{"limit": 100}],
        "get_capabilities": [{}],
        "wait_for_message": [
            {"inbox_id": inbox_id, "timeout_s": 1, "since": since} for since in (FIRST, message_id)
        ],
        "memory_get": [{"key": "0", "max_chars": 100_000, "include_history": True}],
        "memory_list": [{}, {"limit": 100}],
        "memory_search": [{"query": "word"}, {"query": NASTY + "word", "limit": 100}],
        "memory_fulltext_search": [{"keywords": "word"}, {"keywords": "word", "limit": 100}],
        "list_rules": [{"limit": 100}],
        "run_rule_plan": [{"rule_id": rule_id, "limit": 100}],
    }


@pytest.mark.parametrize("name", greedy("", "", ""))
async def test_no_answer_is_too_long(name, full, agent):
    inbox, added = full
    rule = await agent.call("create_rule", rule_yaml=EVERYTHING, dry_run=False)
    for one in added:
        for arguments in greedy(inbox.id, one.message_id, one.thread_id, rule["id"])[name]:
            body = await agent.call(name, **arguments)

            assert len(as_text(body)) <= MOST
            assert ("cut" in body) <= body.get("truncated", False)


def test_every_tool_that_reads_is_covered():
    readers = {tool.name for tool in choose_tools(read_only=True) if not tool.never_truncated}

    assert readers == set(greedy("", "", ""))


async def test_reading_in_parts_gives_the_full_text(full, agent):
    _, added = full
    message_id = added[list(HOSTILE).index("text that doubles when written")].message_id
    text, offset = "", 0
    while offset is not None:
        part = await agent.call(
            "get_message", message_id=message_id, text_offset=offset, max_chars=100_000
        )
        text, offset = text + part["text"], part.get("next_offset")

    assert '"\\' * 100_000 == text.strip()


async def test_an_error_is_never_too_long(agent):
    error = await agent.fail("get_message", **{"x" * 500_000: 1, "message_id": "y" * 500_000})

    assert len(as_text(error)) <= MOST


async def test_an_attachment_of_a_megabyte_is_complete(agent, ctx, inbox):
    content = b"x" * (1024 * 1024)
    added = await deliver(ctx, inbox, mail(attachments=[("a.bin", "application/zip", content)]))
    page = await agent.call("list_attachments", message_id=added.message_id)

    body = await agent.call("get_attachment_content", attachment_id=page["results"][0]["id"])

    assert b64encode(content).decode() == body["content"]


async def test_ordinary_mail_fits_in_much_less(agent, ctx, inbox):
    """A page of 50 ordinary mails, a long mail and a long thread, with default arguments."""
    first = await deliver(ctx, inbox, ordinary(0))
    for number in range(1, 60):
        await deliver(ctx, inbox, ordinary(number))
    calls = [
        ("list_messages", {"inbox_id": inbox.id}),
        ("search_messages", {"inbox_id": inbox.id, "q": "quarterly"}),
        ("get_message", {"message_id": first.message_id}),
        ("list_threads", {"inbox_id": inbox.id}),
        ("get_thread", {"thread_id": first.thread_id}),
        ("list_attachments", {"inbox_id": inbox.id}),
    ]

    sizes = {name: len(as_text(await agent.call(name, **given))) for name, given in calls}

    assert {} == {name: size for name, size in sizes.items() if size > MAX_BY_DEFAULT}


def ordinary(number: int) -> bytes:
    """One mail of a long conversation in a company."""
    said = f"I have looked at the quarterly figures, part {number}, and have some questions. " * 12
    quoted = "".join(f"> {line}\n" for line in (said + "\n").splitlines() * 20)
    return mail(
        f"{'Re: ' if number else ''}Quarterly figures for the north-western region",
        f"Hello Bo,\n\n{said}\n\nBest regards\nAna Lee\n\nOn Monday Bo wrote:\n{quoted}",
        sender=f"Ana Maria Lee-Example <ana.maria.lee{number % 7}@department.example.com>",
        to="bo@postroom.localhost, " + ", ".join(f"team{n}@example.com" for n in range(6)),
        message_id=f"<q{number}@example.com>",
        references=[f"<q{n}@example.com>" for n in range(number)],
        attachments=[("figures.pdf", "application/pdf", b"%PDF-1.4")] if number % 3 == 0 else [],
    )
