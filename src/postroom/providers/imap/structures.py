"""BODYSTRUCTURE (RFC 3501 §7.4.2) as a tree of parts with their numbers."""

from __future__ import annotations

from postroom.mail.charsets import guess
from postroom.model.imap import ImapPart
from postroom.providers.imap.faults import Unreadable
from postroom.providers.imap.values import Value

MOST_PARTS = 1_000
_ENVELOPE = ("Date", "Subject", "From", "Sender", "Reply-To", "To", "Cc", "Bcc")
_SHOWN = ("From", "Date", "Subject", "To")


def read_structure(value: Value) -> ImapPart:
    """The tree of a whole message. Raises Unreadable."""
    return _Reader().read(value, "", is_body=True)


class _Reader:
    """Numbers parts while it reads them, and stops when there are too many."""

    def __init__(self) -> None:
        self._parts = 0

    def read(self, value: Value, number: str, *, is_body: bool) -> ImapPart:
        """A part; `is_body` is that of a whole message, whose only part has the number 1."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise Unreadable(f"a message of more than {MOST_PARTS} parts")
        if not isinstance(value, list) or not value:
            raise Unreadable("a part without a description")
        if isinstance(value[0], list):
            return self._multipart(value, number)
        return self._leaf(value, _inside(number, 1) if is_body else number)

    def _multipart(self, value: list[Value], number: str) -> ImapPart:
        children = _leading_lists(value)
        rest = value[len(children) :]
        return ImapPart(
            number=number,
            content_type=f"multipart/{_text(_at(rest, 0)).lower() or 'mixed'}",
            parameters=_pairs(_at(rest, 1)),
            children=tuple(
                self.read(child, _inside(number, place), is_body=False)
                for place, child in enumerate(children, 1)
            ),
        )

    def _leaf(self, value: list[Value], number: str) -> ImapPart:
        main, sub = _text(_at(value, 0)).lower(), _text(_at(value, 1)).lower()
        content_type = f"{main or 'text'}/{sub or 'plain'}"
        size = _at(value, 6)
        embedded = _at(value, 8) if content_type in ("message/rfc822", "message/global") else None
        extra = 10 if embedded else 8 if main == "text" else 7
        disposition = _disposition(value[extra : extra + 4])
        return ImapPart(
            number=number,
            content_type=content_type,
            parameters=_pairs(_at(value, 2)),
            encoding=_text(_at(value, 5)).strip().lower(),
            size_bytes=size if isinstance(size, int) else 0,
            disposition=disposition[0],
            disposition_parameters=disposition[1],
            content_id=_text(_at(value, 3)),
            message=self.read(embedded, number, is_body=True) if embedded else None,
            heading=_heading(_at(value, 7)) if embedded else (),
        )


def _leading_lists(value: list[Value]) -> list[Value]:
    found: list[Value] = []
    for item in value:
        if not isinstance(item, list):
            break
        found.append(item)
    return found


def _inside(number: str, place: int) -> str:
    return f"{number}.{place}" if number else str(place)


def _at(value: list[Value], place: int) -> Value:
    return value[place] if place < len(value) else None


def _text(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    return guess(value) if isinstance(value, bytes) else ""


def _pairs(value: Value) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        return ()
    texts = [_text(item) for item in value[:200]]
    return tuple(zip(texts[::2], texts[1::2], strict=False))


def _disposition(extra: list[Value]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The first list that looks like a disposition.

    QUIRK: some servers leave out the MD5 before it or count lines where there are none, so that
    its place is not certain.
    """
    for value in extra:
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            kind = _text(value[0]).lower()
            if kind in ("attachment", "inline", "form-data"):
                return kind, _pairs(_at(value, 1))
    return "", ()


def _heading(envelope: Value) -> tuple[tuple[str, str], ...]:
    """The header of a message inside the message, as far as people look at it."""
    if not isinstance(envelope, list):
        return ()
    fields = dict(zip(_ENVELOPE, envelope, strict=False))
    values = ((name, _field(fields.get(name))) for name in _SHOWN)
    return tuple((name, value) for name, value in values if value)


def _field(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(_address(item) for item in value[:20])
    return _text(value)


def _address(value: Value) -> str:
    if not isinstance(value, list) or len(value) < 4:
        return ""
    name, address = _text(value[0]), f"{_text(value[2])}@{_text(value[3])}"
    return f"{name} <{address}>" if name else address
