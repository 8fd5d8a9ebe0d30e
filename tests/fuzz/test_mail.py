from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address_list
from postroom.mail.compose import ComposeInput, OutgoingAttachment, compose
from postroom.mail.html.html import html_to_text, sanitise_html
from postroom.mail.message import fingerprint
from postroom.mail.mime.attachments import content_disposition, safe_filename
from postroom.mail.parse import read_message
from postroom.mail.quoting import split_reply
from postroom.mail.text.fold import fold
from postroom.mail.text.invisible import cleaned
from postroom.mail.threads import thread_keys
from postroom.model.limits import Limits
from tests.fuzz.mails import htmls, mails, texts

LIMITS = Limits()


def strings(value: Any) -> Iterator[str]:
    """Every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from strings(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from strings(getattr(value, field.name))


@given(mails)
def test_any_bytes_are_a_message_that_can_be_stored(raw: bytes) -> None:
    parsed = read_message(raw, LIMITS)

    assert len(raw) == parsed.size_bytes
    assert len(parsed.snippet) <= 120
    for text in strings(parsed):
        assert "\0" not in text
        text.encode()
    for attachment in parsed.attachments:
        assert attachment.filename
        assert not set(attachment.filename) & set("/\\\r\n")
    assert 32 == len(fingerprint(parsed))
    assert parsed.internet_message_id not in thread_keys(parsed)


@given(mails)
def test_parsing_is_deterministic(raw: bytes) -> None:
    assert read_message(raw, LIMITS) == read_message(raw, LIMITS)


@given(htmls)
def test_any_html_becomes_text(html: str) -> None:
    rendered = html_to_text(html)

    for text in strings(rendered):
        assert "\0" not in text
        text.encode()


@given(htmls)
def test_sanitised_html_is_inert(html: str) -> None:
    tree = LexborHTMLParser(sanitise_html(html))

    for node in tree.root.traverse() if tree.root else ():
        assert node.tag not in {"script", "iframe", "style", "svg", "math", "form", "object"}
        for name, value in node.attributes.items():
            assert not name.startswith("on")
            assert name not in {"srcdoc", "action", "formaction"}
            if name in {"src", "href"}:
                assert (
                    (value or "").lower().startswith(("cid:", "http", "mailto:", "tel:", "#", "/"))
                )
            if name == "src":
                assert (value or "").lower().startswith("cid:")


@given(texts)
def test_no_line_is_lost_when_a_reply_is_split(text: str) -> None:
    reply = split_reply(text)

    parts = f"{reply.new_text}{reply.quoted_text}{reply.signature}"
    kept = sorted("".join(parts.split()))
    whole = sorted("".join(text.split()))
    assert [c for c in whole if c != "-"] == [c for c in kept if c != "-"]


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    assert fold(text) == fold(fold(text))


@given(st.text(max_size=300))
def test_file_names_have_no_path(name: str) -> None:
    safe = safe_filename(name)

    assert 0 < len(safe) <= 255
    assert not set(safe) & set('/\\\0\r\n"<>|?*:')
    assert safe not in (".", "..")
    header = content_disposition(name)
    assert header.isascii()
    assert header.isprintable()


anything = st.one_of(
    st.text(max_size=60),
    st.text("\r\n\0 \t:;,=?<>()\"'\\@\u2028\x85ab.", max_size=40),
    st.sampled_from(
        (
            "x=?UTF-8?Q?=0A?=Bcc: e@e.example",
            "x\r\nBcc: e@e.example",
            "=?utf-8?q?a?=",
            "a" * 2_000,
            "ü" * 600,
            '"; filename="b',
            "\u202egnp.exe",
        )
    ),
)


def write(**changes: Any) -> tuple[ComposeInput, bytes] | None:
    """Compose a mail; None if the input is refused."""
    values: dict[str, Any] = {
        "sender": ("Ada", "ada@example.org"),
        "to": (("Bob", "bob@example.org"),),
        "subject": "Hello",
        "text": "Hi",
        "internet_message_id": "1@example.org",
        "date": datetime(2026, 10, 10, 8, tzinfo=UTC),
    }
    outgoing = ComposeInput(**(values | changes))
    try:
        return outgoing, compose(outgoing)
    except InvalidInput:
        return None


def header_names(raw: bytes) -> list[str]:
    """The names of the headers, as read by an independent parser."""
    return [name for name, _ in email.message_from_bytes(raw, policy=email.policy.compat32).items()]


PLAIN = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type",
         "Content-Transfer-Encoding"]  # fmt: skip


def shown(line: str) -> str:
    """A line as displayed."""
    return " ".join(cleaned(line, one_line=True).split())


@given(anything)
def test_a_subject_adds_no_other_header(subject: str) -> None:
    if (written := write(subject=subject)) is None:
        return
    _, raw = written

    assert PLAIN == header_names(raw)
    assert shown(subject) == read_message(raw, LIMITS).subject


@given(anything)
def test_a_display_name_adds_no_other_header(name: str) -> None:
    if (written := write(to=((name, "bob@example.org"),))) is None:
        return
    _, raw = written

    assert PLAIN == header_names(raw)
    found = [a for a in read_message(raw, LIMITS).addresses if a.role == "to"]
    assert [("bob@example.org", shown(name))] == [(a.address, shown(a.name)) for a in found]


@given(anything)
def test_an_address_is_kept_exactly_or_refused(address: str) -> None:
    if (written := write(to=(("", address),))) is None:
        return
    _, raw = written

    assert PLAIN == header_names(raw)
    assert 1 == len([a for a in read_message(raw, LIMITS).addresses if a.role == "to"])


@given(anything, anything)
def test_an_extra_header_adds_no_other_header(name: str, value: str) -> None:
    if (written := write(headers=((f"X-{name}", value),))) is None:
        return
    _, raw = written

    assert [*PLAIN[:5], f"X-{name}", *PLAIN[5:]] == header_names(raw)


@given(anything, anything, st.binary(max_size=300))
def test_a_file_arrives_unchanged(filename: str, content_type: str, content: bytes) -> None:
    if (
        written := write(attachments=(OutgoingAttachment(filename, content_type, content),))
    ) is None:
        return
    _, raw = written

    (attachment,) = read_message(raw, LIMITS).attachments
    assert content == attachment.content
    assert 1 == len(list(email.message_from_bytes(raw).walk())[2:])


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), htmls, st.text()))
def test_bodies_arrive_unchanged(text: str | None, html: str | None) -> None:
    if (written := write(text=text, html=html)) is None:
        return
    _, raw = written

    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")


@given(anything)
@example("bücher@bücher.example")
def test_typed_addresses_are_valid_or_refused(text: str) -> None:
    try:
        found = parse_address_list(text)
    except InvalidInput:
        return

    for _, address in found:
        assert 1 == address.count("@") or '"' in address
        assert address.rpartition("@")[2].isascii()
        assert address.isprintable()


def test_blind_copies_are_in_no_header() -> None:
    written = write(bcc=(("Secret", "secret@example.org"),))

    assert written is not None
    assert b"ecret" not in written[1]
    with pytest.raises(InvalidInput):
        compose(
            ComposeInput(
                ("", "a@b.org"), (), "s", "1@x", datetime.now(UTC), bcc=(("", "x"),), text=""
            )
        )
