"""The limits that can be set, each with a bound that its default sets."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

from postroom.config.readers import read_integer
from postroom.config.settings import Setting
from postroom.model.limits import Limits

_SUMMARIES = {
    "message_bytes": "A message, as received or sent.",
    "attachments_bytes": "The attachments of a sent message together, decoded.",
    "attachments_count": "Attachments of a sent message.",
    "header_bytes": "The header block that is parsed.",
    "header_count": "Headers that are parsed.",
    "mime_parts": "MIME parts that are parsed.",
    "mime_depth": "Depth of MIME parts that is parsed.",
    "header_addresses": "Addresses that are parsed in one header.",
    "filename_chars": "Characters of an attachment's file name.",
    "html_bytes": "HTML that goes into the sanitiser.",
    "recipients": "Recipients of a sent message.",
    "request_bytes": "The body of a request and the arguments of a tool.",
    "text_chars": "Characters of a message's text that are kept and searched.",
    "inline_bytes": "An attachment that is answered whole as base64.",
    "requests_per_second": "Requests a second of one key.",
    "requests_burst": "Requests of one key at once.",
    "sends_per_hour": "Messages that one key may send an hour.",
    "domain_sends_per_hour": "Messages that go to one domain an hour; more wait for the next.",
    "smtp_per_minute": "Mails a minute that one address may bring over SMTP.",
    "memory_bytes": "The text of a memory.",
}
_MOST = {"mime_depth": 100}
"""Where a hundred times the default would be too much."""


def _limit(name: str, default: int) -> Setting:
    most = _MOST.get(name, default * 100)
    return Setting(
        f"limit_{name}",
        partial(read_integer, 1, most),
        f"1 to {most}",
        _SUMMARIES[name],
        str(default),
        f"limits.{name}",
    )


LIMITS = tuple(_limit(f.name, f.default) for f in fields(Limits) if isinstance(f.default, int))
