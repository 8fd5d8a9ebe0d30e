from __future__ import annotations

import email
import email.policy
from datetime import UTC, datetime
from typing import Any

import pytest

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address, parse_address_list, parse_own_address
from postroom.mail.compose import (
    ComposeInput,
    OutgoingAttachment,
    compose,
    reply_references,
    reply_subject,
)
from postroom.mail.parse import parse_message


def outgoing(**changes: Any) -> ComposeInput:
    fields: dict[str, Any] = {
        "sender": ("Ada", "ada@example.org"),
        "to": (("Bob", "bob@example.org"),),
        "subject": "Hello",
        "text": "Hi\n",
        "internet_message_id": "1@example.org",
        "date": datetime(2026, 10, 10, 8, tzinfo=UTC),
    }
    return ComposeInput(**(fields | changes))


def test_a_composed_mail_is_parsed_back_unchanged() -> None:
    raw = compose(
        outgoing(
            subject="Grüße 你好 " * 20,
            text="ü" * 2_000,
            html="<p>ü</p>",
            to=(('Ölaf, the "Great"', "o@example.org"),),
            attachments=(OutgoingAttachment("évidence 你.pdf", "application/pdf", b"%PDF\0\r\n"),),
            references=("a@b", "c@d"),
        )
    )

    parsed = parse_message(raw)

    assert ("Grüße 你好 " * 20).strip() == parsed.subject
    assert "ü" * 2_000 == parsed.text
    assert 'Ölaf, the "Great"' == parsed.addresses[1].name
    assert [("évidence 你.pdf", b"%PDF\0\r\n")] == [
        (a.filename, a.content) for a in parsed.attachments
    ]
    assert ("a@b", "c@d") == parsed.references
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")


def test_files_that_hold_files_can_be_sent() -> None:
    inside = (OutgoingAttachment("a.txt", "text/plain", b"a"),)
    inner = compose(outgoing(attachments=inside, internet_message_id="inner@example.org"))
    files = (
        OutgoingAttachment("mail.eml", "message/rfc822", inner),
        OutgoingAttachment("empty.txt", "text/plain", b""),
    )
    text = "begin 644 cat.txt\n#0V%T\n`\nend\n"

    parsed = parse_message(compose(outgoing(attachments=files, text=text)))

    assert {"mail.eml", "a.txt", "empty.txt", "cat.txt"} == {a.filename for a in parsed.attachments}
    assert inner in [a.content for a in parsed.attachments]


OTHER = compose(outgoing(internet_message_id="other@example.org"))


@pytest.mark.parametrize(
    ("content", "sent_as"),
    [
        (OTHER, ("message/rfc822", "7bit")),
        (OTHER.rstrip(), ("message/rfc822", "7bit")),
        (b"", ("message/rfc822", "7bit")),
        (OTHER.replace(b"\r\n", b"\n"), ("application/octet-stream", "base64")),
        (OTHER + "Grüße\r\n".encode(), ("application/octet-stream", "base64")),
        (OTHER + b"x" * 999, ("application/octet-stream", "base64")),
        (OTHER + b"a\rb\0", ("application/octet-stream", "base64")),
        (compose(outgoing(html="<p>x</p>")), ("application/octet-stream", "base64")),
    ],
    ids=["a mail", "no end", "empty", "bare LF", "8bit", "long line", "controls", "our boundary"],
)
def test_a_mail_in_a_mail_is_never_in_base64(content: bytes, sent_as: tuple[str, str]) -> None:
    """Python's parser finds no defect, and the bytes are the given ones."""
    attached = (OutgoingAttachment("mail.eml", "message/rfc822", content),)
    raw = compose(outgoing(attachments=attached))
    part = list(email.message_from_bytes(raw, policy=email.policy.default).iter_parts())[1]

    assert sent_as == (part.get_content_type(), part["Content-Transfer-Encoding"])
    assert "mail.eml" == part.get_filename()
    assert content in [a.content for a in parse_message(raw).attachments]


@pytest.mark.parametrize(
    "address", ["jürgen@example.org", "用户.名@example.org", "उदा@example.org"]
)
def test_an_address_in_any_script_is_written_as_it_is(address: str) -> None:
    raw = compose(outgoing(to=(("Jürgen", address),), text="Grüße"))
    header, _, body = raw.partition(b"\r\n\r\n")

    assert ["ada@example.org", address] == [a.address for a in parse_message(raw).addresses]
    assert (False, True) == (header.isascii(), body.isascii())


@pytest.mark.parametrize("local", ["ü\u200b", "ü\u202e", "ü ü", "ü..ü", "ü<ü", "ü" * 33])
def test_an_address_with_invisible_characters_is_refused(local: str) -> None:
    with pytest.raises(InvalidInput):
        compose(outgoing(to=(("", f"{local}@example.org"),)))


def test_our_addresses_are_ascii() -> None:
    with pytest.raises(InvalidInput, match="ASCII"):
        parse_own_address("jürgen@example.org")


def test_blind_copies_are_not_in_the_headers() -> None:
    raw = compose(outgoing(bcc=(("", "secret@example.org"),)))

    assert b"secret" not in raw


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("subject", {"subject": "x\r\nBcc: evil@example.org"}),
        ("subject", {"subject": "x\u2028y"}),
        ("to", {"to": (("", "bob@example.org\r\nBcc: e@e.org"),)}),
        ("to", {"to": (("x\ny", "bob@example.org"),)}),
        ("to", {"to": (("", "bob"),)}),
        ("bcc", {"bcc": (("", "not an address"),)}),
        ("in_reply_to", {"in_reply_to": "a@b> <c@d"}),
        ("attachments[0].filename", {"attachments": (OutgoingAttachment("a\nb", "a/b", b""),)}),
        ("attachments[0].content_type", {"attachments": (OutgoingAttachment("a", "x", b""),)}),
        ("headers.X-A", {"headers": (("X-A", "b\r\nBcc: c@d"),)}),
        ("headers", {"headers": (("Bcc", "c@d"),)}),
        ("headers", {"headers": (("Authentication-Results", "mx; dkim=pass"),)}),
        ("headers", {"headers": (("DKIM-Signature", "v=1"),)}),
        ("text", {"text": "nul\0"}),
        ("text", {"text": None}),
    ],
)
def test_invalid_fields_are_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        compose(outgoing(**changes))

    assert field == refused.value.details["field"]


def test_an_encoded_newline_in_a_subject_stays_text() -> None:
    subject = "x=?UTF-8?Q?=0A?=Bcc: evil@example.org"

    raw = compose(outgoing(subject=subject))

    assert subject == parse_message(raw).subject
    assert "bcc" not in {name.lower() for name, _ in parse_message(raw).headers}


def test_typed_addresses_are_read_strictly() -> None:
    assert ("Ada L", "ada@example.org") == parse_address("Ada L <ada@example.org>")
    assert (("", "a@b.org"), ("C, D", "c@d.org")) == parse_address_list('a@b.org, "C, D" <c@d.org>')


@pytest.mark.parametrize(
    "text", ["", "bob", "a@b@c", "a b@c.org", "<a@b.org", "a@-b.org", "a@b.org, x"]
)
def test_bad_typed_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address_list(text)


def test_a_reply_has_one_re() -> None:
    assert "Re: [list] Hi" == reply_subject("RE: AW: Re[2]: [list] Hi")


def test_a_reply_refers_to_the_whole_chain() -> None:
    parent = parse_message(b"Message-ID: <3@x>\nReferences: <1@x>\n\t<2@x>\n\nHi")

    assert ("1@x", "2@x", "3@x") == reply_references(parent)
