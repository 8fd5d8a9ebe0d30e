"""No field of a mail can inject a header, as read by an independent parser.

`INJECTIONS=1000000` tries more texts than the few of the normal run.
"""

from __future__ import annotations

import email
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.header import decode_header, make_header
from email.message import Message
from email.utils import getaddresses

import pytest

from postroom.errors import InvalidInput
from postroom.mail import addresses, verification
from postroom.mail.addresses import parse_address_list
from postroom.mail.compose import ComposeInput, OutgoingAttachment, compose

CASES = int(os.environ.get("INJECTIONS", "4000"))
SLY = (
    "\r\n", "\n", "\r", "\0", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x7f", "\t",
    "\r\n ", "\r\n\r\n", "\r\nBcc: eve@evil.example", "\nX-Evil: 1", "%0d%0a", "\ud800",
    "\\r\\n", "\u560a\u560d", "\uff0d\uff0a",
)  # fmt: skip
"""Characters that end a header, and those that some programs convert to them."""
ODD = (
    "=?utf-8?q?=0ABcc:_e@x.example?=", "=?UTF-8?B?DQpCY2M6IGVAeC5leGFtcGxl?=", "=?utf-8?q?", "?=",
    "=?us-ascii?q?=0D=0A?= =?us-ascii?q?_Bcc:?=", "=0A", "; filename=b", '"', "\\", '\\"', "'",
    "(a)", "(", ")", "<", ">", "<e@x.example>", ", e@x.example", ",", ";", ":", "Bcc: e@x.example",
    "@", ".", "=", "*0*=", "utf-8''%0D%0A", "[", "]", "\xa0", "\u3000", "\u200b", "\u202e", "\xad",
)  # fmt: skip
"""Characters with a meaning in mail protocols."""
PLAIN = ("Ana", "Grüße", "你好", "a", " ", "  ", "x" * 70, "ü" * 60, "\U0001f600", "Re:", "-", "1")
PIECES = (*SLY, *ODD * 2, *PLAIN * 8)

USUAL = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"]
ALONE = [*USUAL, "Content-Transfer-Encoding"]
OUTGOING = ComposeInput(
    sender=("Ada", "ada@example.org"),
    to=(("Bob", "bob@example.org"),),
    subject="Hello",
    text="Hi",
    internet_message_id="1@example.org",
    date=datetime(2026, 10, 10, 8, tzinfo=UTC),
)
Read = Callable[[Message], object]
Case = tuple[ComposeInput, list[str], Read, object]
"""A mail with a text in one field, its headers, and the parsed value of the field."""


def with_header(name: str) -> list[str]:
    """The headers of a mail that has one more, where it belongs."""
    place = {"Cc": 2, "Reply-To": 2}.get(name, 5)
    return [*ALONE[:place], name, *ALONE[place:]]


def unfolded(value: object) -> str:
    return str(value).replace("\r\n", "")


def decoded(value: object) -> str:
    return str(make_header(decode_header(unfolded(value))))


def people(name: str) -> Read:
    def read(mail: Message) -> object:
        found = getaddresses([unfolded(mail[name])])
        return [(decoded(display), address) for display, address in found]

    return read


def named(text: str, name: str, field: str) -> Case:
    person = ((text, "bob@example.org"),)
    outgoing_mail = replace(OUTGOING, **{field: person if field != "sender" else person[0]})
    headers = ALONE if field in ("sender", "to") else with_header(name)
    return outgoing_mail, headers, people(name), [(" ".join(text.split()), "bob@example.org")]


def addressed(text: str, name: str, field: str) -> Case:
    person = (("", text if "@" in text else f"{text}@example.org"),)
    outgoing_mail = replace(OUTGOING, **{field: person if field != "sender" else person[0]})
    headers = ALONE if field in ("sender", "to") else with_header(name)
    return outgoing_mail, headers, lambda mail: len(getaddresses([unfolded(mail[name])])), 1


def subject(text: str) -> Case:
    outgoing_mail = replace(OUTGOING, subject=text)
    return outgoing_mail, ALONE, lambda mail: decoded(mail["Subject"]), " ".join(text.split())


def blind(text: str) -> Case:
    outgoing_mail = replace(OUTGOING, bcc=((text, "eve@example.org"), ("", f"{text}@example.org")))
    return outgoing_mail, ALONE, lambda mail: mail["Bcc"], None


def identified(text: str, name: str, field: str) -> Case:
    value: object = (text,) if field == "references" else text
    outgoing_mail = replace(OUTGOING, **{field: value})  # type: ignore[arg-type]
    headers = ALONE if name == "Message-ID" else with_header(name)
    return outgoing_mail, headers, lambda mail: unfolded(mail[name]).strip(), f"<{text}>"


def header_value(text: str) -> Case:
    outgoing_mail = replace(OUTGOING, headers=(("X-Note", text),))
    said = " ".join(text.split())
    return outgoing_mail, with_header("X-Note"), lambda mail: decoded(mail["X-Note"]), said


def header_name(text: str) -> Case:
    outgoing_mail = replace(OUTGOING, headers=((text, "yes"),))
    return outgoing_mail, with_header(text), lambda mail: mail[text], "yes"


def filed(name: str, kind: str) -> Case:
    outgoing_mail = replace(OUTGOING, attachments=(OutgoingAttachment(name, kind, b"x"),))
    headers = ["Content-Type", "Content-Disposition", "Content-Transfer-Encoding"]
    return outgoing_mail, USUAL, files, [(headers, bare(name), kind.lower())]


def files(mail: Message) -> object:
    parts = mail.get_payload()
    assert isinstance(parts, list)
    return [(p.keys(), bare(p.get_filename() or ""), p.get_content_type()) for p in parts[1:]]


def bare(name: str) -> str:
    """A name without what the other parser strips: quotes, brackets and white space."""
    return re.sub(r'[\\"<>\s]', "", name)


FIELDS: dict[str, Callable[[str], Case]] = {
    "from": lambda text: named(text, "From", "sender"),
    "to": lambda text: named(text, "To", "to"),
    "cc": lambda text: named(text, "Cc", "cc"),
    "reply_to": lambda text: named(text, "Reply-To", "reply_to"),
    "from address": lambda text: addressed(text, "From", "sender"),
    "to address": lambda text: addressed(text, "To", "to"),
    "reply_to address": lambda text: addressed(text, "Reply-To", "reply_to"),
    "bcc": blind,
    "subject": subject,
    "internet_message_id": lambda text: identified(text, "Message-ID", "internet_message_id"),
    "in_reply_to": lambda text: identified(text, "In-Reply-To", "in_reply_to"),
    "references": lambda text: identified(text, "References", "references"),
    "header value": header_value,
    "header name": header_name,
    "filename": lambda text: filed(text, "application/pdf"),
    "content_type": lambda text: filed("a.pdf", f"application/{text}"),
}


def differences(cases: int) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The texts that did not stay in their field, and how many were written into each field."""
    chance, found = random.Random(7), []
    written: Counter[str] = Counter()
    names = list(FIELDS)
    for number in range(cases):
        name = names[number % len(names)]
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 4)))
        if (raw := attempt(case := FIELDS[name](text))) is None:
            continue
        written[name] += 1
        if not is_as_meant(raw, case):
            found.append((name, text))
    return found, written


def attempt(case: Case) -> bytes | None:
    try:
        return compose(case[0])
    except InvalidInput:
        return None


def is_as_meant(raw: bytes, case: Case) -> bool:
    _, headers, read, expected = case
    mail = email.message_from_bytes(raw)
    return headers == mail.keys() and expected == read(mail)


def test_a_text_stays_in_its_field_or_is_refused() -> None:
    found, written = differences(CASES)

    assert [] == found[:10]
    assert sum(written.values()) > CASES / 4
    assert {"subject", "to", "header value", "filename", "references"} <= written.keys()


def test_an_address_is_one_argument_of_one_command_or_refused() -> None:
    chance, taken = random.Random(8), 0
    for number in range(CASES):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 3)))
        try:
            [(_, address)] = parse_address_list(text if number % 2 else f"{text}@example.org")
        except (InvalidInput, ValueError):
            continue
        taken += 1
        local, _, domain = address.rpartition("@")
        assert re.fullmatch(r"[!-~]+", domain), text
        assert re.fullmatch(r'".+"|[^ ]+', local), text
        assert all(c.isprintable() for c in address), text
        assert not set(address.rpartition('"')[2]) & set("<> "), text

    assert taken > CASES / 50


def test_without_our_checks_injections_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted defect: no control character is refused, and nothing is parsed back."""
    monkeypatch.setattr(addresses, "_CONTROL", re.compile("[\ud800-\udfff]"))
    monkeypatch.setattr(verification, "verify", lambda *_: None)

    found, _ = differences(4_000)

    assert [] != found
