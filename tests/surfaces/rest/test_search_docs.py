"""The examples of docs/reference/rest.md, section Search, are run as printed."""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from postroom.operations.mail.messages import SearchMessages
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import RestClient

DOCS = Path(__file__).parents[3] / "docs"


def rows(head: str) -> list[list[str]]:
    """The rows of the tables of the section that have this head."""
    text = (DOCS / "reference" / "rest.md").read_text()
    section = text.split("\n## Search\n")[1].split("\n## ")[0]
    tables = re.findall(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", section, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def the_mail() -> bytes:
    part = dict(rows("| part | value |"))
    date: datetime = parsedate_to_datetime(part["Date"])
    return mail(
        part["Subject"],
        part["Text"],
        sender=part["From"],
        to=part["To"],
        cc=part["Cc"],
        date=date,
        attachments=[(part["Attachment"], "application/pdf", b"%PDF-1.4")],
    )


async def told(rest: RestClient, question: str) -> str:
    params = [tuple(pair.split("=", 1)) for pair in question.split("&")]
    response = await rest.send("GET", "/v1/search/messages", params=params)
    if response.status_code != 200:
        return str(response.status_code)
    return "yes" if response.json()["total"] else "no"


async def test_every_example_has_the_documented_result(
    rest: RestClient, ctx: RequestContext, inbox: Inbox
) -> None:
    found = await deliver(ctx, inbox, the_mail())
    for label in ("Work", "Urgent"):
        await rest.post("/v1/messages/labels", message_ids=[found.message_id], label=label)
    examples = rows("| query | found | why |")

    answers = [(row[0], await told(rest, row[0])) for row in examples]

    assert [(row[0], row[1]) for row in examples] == answers
    assert len(answers) > 40
    await rest.post(f"/v1/messages/{found.message_id}/move", destination="Trash")
    in_trash = rows("| query | found |")
    assert in_trash == [[row[0], await told(rest, row[0])] for row in in_trash]
    assert 4 == len(in_trash)


def test_every_filter_is_in_the_table() -> None:
    fields = SearchMessages.model_fields.items()
    names = {info.alias or name for name, info in fields} - {"limit", "offset", "cursor"}

    written = {
        name
        for row in rows("| parameter | what it matches |")
        for name in re.findall(r"\w+", row[0])
    }

    assert names - {"query"} == written


def test_other_pages_link_to_the_section() -> None:
    for page in ("mcp.md", "cli.md"):
        assert "(rest.md#search)" in (DOCS / "reference" / page).read_text()
