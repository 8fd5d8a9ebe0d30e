"""A filter matches the same messages in searches, lists, waits and rules."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.mail.text.fold import TextFilter, fold
from postroom.model.event import FIRST
from postroom.model.inbox import Inbox
from postroom.model.mail.message import NamedAddress
from postroom.model.view import EVERYTHING
from postroom.operations.mail.message_selection import name_and_words
from postroom.operations.mail.messages import list_messages, search_messages, wait_for_message
from postroom.rules.matching import _is_from
from tests.mails import deliver, mail, new_inbox

SENDERS = [
    "Ana Lee <ana@example.com>",
    "ANA@Example.COM",
    "Ana <ana@example.org>",
    "Susana <susana@example.com>",
    "Bo <bo@sub.example.com>",
    "Bo <bo@notexample.com>",
    "a@example.com, b@example.org",
    "Straße 7 <strasse@xn--strae-oqa.example>",
    '"ana@example.com" <mallory@evil.example>',
    "no-address",
    "",
]
WORDS = ["ana", "Invoice", "STRASSE", "straße", "50 %", "a_b", "x", "exam", "\u200bin\u200bvoice"]
FILTERS = [
    *(
        "ana@",
        "ana@example.com",
        "ANA@EXAMPLE.COM",
        "@example.com",
        "@EXAMPLE.com",
        "@",
        "@example",
    ),
    *("example.com", "ana", "lee", "ana lee", "susana", "example", "na@ex", "ana@example", "a@b@c"),
    *(
        "@sub.example.com",
        "bo@",
        "<ana@example.com>",
        "mallory",
        "strasse",
        "%",
        "_",
        "\x1f",
        "\x1e",
    ),
    *("ana@example.com lee", "@example.com\x1eana", "b@example.org", "no-address"),
]


@dataclass(frozen=True)
class FilledInbox:
    """Some mails, in the order of arrival."""

    ctx: RequestContext
    inbox: Inbox
    message_ids: tuple[str, ...]

    async def found(self, **filters: Any) -> list[str]:
        """The results of a search, which must equal those of a list."""
        given = {"inbox_id": self.inbox.id, "limit": 100, "mailbox": "*", **filters}
        searched = await call(self.ctx, search_messages, given)
        listed = await call(self.ctx, list_messages, given)
        assert [row.id for row in listed.results] == [row.id for row in searched.results]
        return [m for m in self.message_ids if m in {row.id for row in searched.results}]

    async def woken(self, **filters: Any) -> list[str]:
        """The messages that would end a wait with the same filters."""
        names = {"from": "sender", "to": "recipient", "q": "q", "subject": "subject"}
        wanted = TextFilter(
            **{
                names[name]: fold(value)
                if name in ("q", "subject")
                else name_and_words(name, value, is_split=False)[0]
                for name, value in filters.items()
            }
        )
        found = []
        for message_id in self.message_ids:
            texts = await self.ctx.store.search_texts(message_id)
            if texts is not None and wanted.matches(texts):
                found.append(message_id)
        return found

    async def awaited(self, **filters: Any) -> str | None:
        """The messages that end a wait, out of all that arrived."""
        given = {"inbox_id": self.inbox.id, "since": FIRST, "timeout_s": 1, **filters}
        waited = await call(self.ctx, wait_for_message, given)
        return waited.message.id if waited.message else None


def written(sender: str, subject: str, text: str, to: str) -> bytes:
    """A mail with an arbitrary From header."""
    raw = mail(subject, text, sender="SENDER <sender@example.com>", to=to or "x@example.net")
    return raw.replace(b"SENDER <sender@example.com>", sender.encode("utf-8"))


@pytest.fixture
async def filled(ctx: RequestContext, inbox: Inbox) -> FilledInbox:
    added = [
        await deliver(
            ctx,
            inbox,
            written(sender, f"{WORDS[n % len(WORDS)]} {n}", WORDS[-n % len(WORDS)], SENDERS[-n]),
        )
        for n, sender in enumerate(SENDERS)
    ]
    return FilledInbox(ctx, inbox, tuple(one.message_id for one in added))


@pytest.mark.parametrize("name", ["from", "to"])
async def test_a_wait_for_a_sender_matches_like_a_search(filled: FilledInbox, name: str) -> None:
    sought = [text for text in FILTERS if fold(text)]

    found = {text: await filled.found(**{name: text}) for text in sought}

    assert found == {text: await filled.woken(**{name: text}) for text in sought}
    assert found["ana@"]
    assert found["@example.com"]
    assert len(found["ana@example.com"]) < len(found["ana"])


@pytest.mark.parametrize("text", ["ana@", "sana", "ANA@EXAMPLE.com", "@Example.ORG", "lee"])
async def test_a_wait_ends_with_the_first_match_of_a_search(filled: FilledInbox, text: str) -> None:
    assert (await filled.found(**{"from": text}))[0] == await filled.awaited(**{"from": text})


async def test_a_wait_continues_while_a_search_has_no_match(filled: FilledInbox) -> None:
    assert [] == await filled.found(**{"from": "@example"})
    assert await filled.awaited(**{"from": "@example"}) is None


async def test_any_sender_of_a_mail_ends_the_wait(filled: FilledInbox) -> None:
    """A From header may name several senders."""
    found = await filled.found(**{"from": "b@example.org"})

    assert found
    assert found[0] == await filled.awaited(**{"from": "b@example.org"})


ADDRESS = st.sampled_from([s for s in SENDERS if s]) | st.from_regex(
    r"\A[A-Za-z]{1,4}@[a-z]{1,3}\.(com|example)\Z"
)
TEXT = st.text(st.sampled_from("anAN @.%_ßẞſ\u00ad\u200bé\u0301İıexmpl-"), min_size=1, max_size=12)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mails=st.lists(st.tuples(ADDRESS, TEXT, TEXT, ADDRESS), min_size=1, max_size=4),
    sought=st.lists(TEXT | ADDRESS | st.sampled_from(FILTERS), min_size=1, max_size=6),
)
async def test_a_filter_matches_the_same_everywhere(
    ctx: RequestContext, mails: list[tuple[str, str, str, str]], sought: list[str]
) -> None:
    inbox = await new_inbox(ctx, ctx.new_id("box").replace("_", "-")[:20])
    added = [await deliver(ctx, inbox, one_mail(*fields)) for fields in mails]
    filled = FilledInbox(ctx, inbox, tuple(one.message_id for one in added))

    for name in ("from", "to", "q"):
        for text in (t for t in sought if fold(t)):
            given = {name: text}
            assert await filled.found(**given) == await filled.woken(**given), given


def one_mail(sender: str, subject: str, text: str, to: str) -> bytes:
    message = EmailMessage()
    message["Subject"] = " ".join(subject.split())
    message.set_content(text)
    head = f"From: {sender}\r\nTo: {to}\r\n".encode()
    return head + message.as_bytes()


@pytest.mark.parametrize("text", [text for text in FILTERS if fold(text)])
async def test_a_rule_matches_addresses_and_domains_like_a_search(
    filled: FilledInbox, text: str
) -> None:
    """An address or a domain that a rule accepts is also one for a search."""
    found = set(await filled.found(**{"from": text}))
    for message_id in filled.message_ids:
        message = await filled.ctx.store.message(message_id, EVERYTHING)
        assert message is not None
        person = NamedAddress(message.from_name, message.from_address)
        if _is_from(person, fold(text)) is not None:
            assert message_id in found
