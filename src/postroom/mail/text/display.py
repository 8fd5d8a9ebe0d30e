"""Cleaning text of mail in responses: no invisible characters, nothing that a client would fetch.

`sanitised` is applied to every response just before it is serialised, so it covers all fields of
all surfaces, mail that an older version parsed, and messages of servers. A client may render a
response as Markdown. Then an image in a mail would tell its sender who reads it, and a link would
hide where it goes behind its text. A space after the `!` of an image, after the `<` of a tag or an
autolink, and after the `]` before the address of a link prevents that; nothing else of the text
changes. In HTML fields the bracket of an image is written as a character reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from postroom.mail.text.invisible import cleaned, may_hide

_LINES = frozenset(("text", "new_text", "quoted_text", "body_text", "extracted_text", "signature",
                    "message", "detail", "html", "body_html"))  # fmt: skip
"""Fields of several lines, which may contain direction marks."""

_HTML = frozenset(("html", "body_html"))
"""Fields that are HTML on purpose, made safe by the sanitiser."""

_AS_IT_IS = frozenset(("content", "raw_source_base64", "yaml", "next_cursor"))
"""Fields that are bytes in disguise."""

_CALLER_FIELDS = frozenset(("body_text", "body_html"))
# A browser reads `<` inside a tag as a part of it, so any continuation of a name opens a tag.
_OPENS = re.compile(
    r"<(?=(?:https?|ftps?|file|wss?):|(?:style|script)\b|[a-z][^\s/<>]*+[\s/<])",
    re.IGNORECASE | re.ASCII,
)
# Entities and escapes in an address are resolved by Markdown, so they may spell any address.
_ADDRESS = r"\s*<?[^\s()<>]*?(?::|//|&|\\|www\.)"
_LINKS = re.compile(rf"\](?=\({_ADDRESS})", re.IGNORECASE)
_DEFINES = re.compile(rf"(^[ \t>*+-]*\[[^\]\n]{{1,999}}\])(?=:{_ADDRESS})", re.MULTILINE)
_MAY_OPEN = re.compile(
    rb"""<(?:[a-z][^\s/<>:\\"]*+[\s/<:\\]|style|script)""",
    re.IGNORECASE,
)
_ESCAPED_CONTROLS = (b"\\u00", b"\\b", b"\\f", b"\\r")


def without_fetches(text: str) -> str:
    """The text, changed so that as Markdown or HTML it loads nothing and hides no host."""
    if "![" in text:
        text = text.replace("![", "! [")
    if "](" in text:
        text = _LINKS.sub("] ", text)
    if "]:" in text:
        text = _DEFINES.sub(r"\1 ", text)
    return _OPENS.sub("< ", text) if "<" in text else text


def is_inert(written: bytes) -> bool:
    """Whether a serialised response has nothing for `sanitised` to change; nearly all have not."""
    # Searching for one byte is fast; for two it is slow.
    if b"!" in written and b"![" in written:
        return False
    if b"](" in written or b"]:" in written:
        return False
    if b"\\" in written and any(control in written for control in _ESCAPED_CONTROLS):
        return False
    if b"<" in written and _MAY_OPEN.search(written):
        return False
    return (written.isascii() and b"\x7f" not in written) or not may_hide(written)


def sanitised(value: Any, field: str = "", *, is_own: bool = False) -> Any:
    """The response as a caller may see it; what callers wrote themselves is not changed."""
    if isinstance(value, str):
        return value if is_own else _sanitise_string(value, field)
    if isinstance(value, Mapping):
        # The caller states the trust of a shape; one inside another has its own.
        is_own = value["trust"] != "mail" if "trust" in value else is_own
        is_draft = str(value.get("id", "")).startswith("drf_")
        kept = _AS_IT_IS | _CALLER_FIELDS if is_draft else _AS_IT_IS
        return {
            name if is_own else _sanitise_string(name, ""): item
            if name in kept
            else sanitised(item, name, is_own=is_own)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [sanitised(item, field, is_own=is_own) for item in value]
    return value


def _sanitise_string(text: str, field: str) -> str:
    text = cleaned(text, one_line=field not in _LINES)
    return text.replace("![", "!&#91;") if field in _HTML else without_fetches(text)
