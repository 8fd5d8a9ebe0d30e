"""What every outgoing mail may carry besides its content: time, Reply-To and extra headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.request import Accepts, Moment, Request, argument
from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address_list
from postroom.sending.outgoing_mail import OutgoingMail, Pair

LONGEST_WAIT = timedelta(days=366)
_MAX_HEADERS = 20
_NAME = r"^(?:[Xx]|[Ll][Ii][Ss][Tt])-[A-Za-z0-9-]{1,70}$"
_REFUSED_NAME = "^[Xx]-(?:{})(?:-|$)".format(
    "|".join(
        "".join(f"[{letter.upper()}{letter}]" for letter in family)
        for family in ("postroom", "mailgun", "mailin", "mailjet", "mandrill", "mc", "mj", "msys",
                       "sib", "smtpapi")
    )
)  # fmt: skip
"""Our own headers, and those from which mail services take instructions, such as more recipients or
another text: SendGrid, Mandrill, SparkPost, Mailgun, Mailjet, Brevo."""

Addresses = Annotated[
    list[Annotated[str, Accepts(request.MAILBOX)]],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(max_length=500),
]
"""A list, or a text with commas."""


def _header_name(name: str) -> str:
    if not re.fullmatch(_NAME, name) or re.match(_REFUSED_NAME, name):
        raise ValueError(
            "only headers whose names begin with X- or List- can be set, but not X-Postroom- or "
            "instructions to a mail service, such as X-SMTPAPI"
        )
    return name


def _as_headers(value: object) -> object:
    """Headers may also be written as `{"X-Name": "value"}` or `X-Name: value`."""
    if isinstance(value, Mapping) and not value.keys() <= {"name", "value"}:
        return [{"name": name, "value": text} for name, text in value.items()]
    lines = [value] if isinstance(value, (str, Mapping)) else value
    return [_as_header(line) for line in lines] if isinstance(lines, list) else lines


def _as_header(line: object) -> object:
    if not isinstance(line, str):
        return line
    name, _, text = line.partition(":")
    return {"name": name.strip(), "value": text.strip()}


class HeaderInput(Request):
    """A header to add to a mail."""

    model_config: ClassVar[ConfigDict] = ConfigDict(title="HeaderInput")
    name: Annotated[
        str,
        argument("Its name.", "X-Campaign", max_length=75),
        AfterValidator(_header_name),
        Accepts({"pattern": _NAME, "not": {"type": "string", "pattern": _REFUSED_NAME}}),
    ]
    value: Annotated[
        str,
        argument("Its value, on one line.", "spring", min_length=1, max_length=900),
        Field(pattern=request.LINE),
        Accepts({"pattern": request.NAME}),
    ]


Headers = Annotated[
    list[HeaderInput],
    BeforeValidator(_as_headers),
    argument(
        "Headers to add, X-… or List-… only.",
        [{"name": "X-Campaign", "value": "spring"}],
        max_length=_MAX_HEADERS,
    ),
]
SendAt = Annotated[Moment, argument("When to send it.", "2027-01-31T09:00Z")]


class MailOptions(Request):
    """What a mail may carry besides its content."""

    reply_to: Annotated[Addresses, argument("Reply-To.", ["team@example.com"])] = []
    headers: Headers = []


def add_options(outgoing_mail: OutgoingMail, options: MailOptions) -> OutgoingMail:
    """The mail with the Reply-To and headers of a request. Raises InvalidInput."""
    outgoing_mail.reply_to = addresses_of("reply_to", options.reply_to)
    added = tuple((header.name, header.value) for header in options.headers)
    outgoing_mail.headers = (*outgoing_mail.headers, *added)
    return outgoing_mail


def addresses_of(field: str, texts: list[str]) -> list[Pair]:
    """The names and addresses of an argument. Raises InvalidInput."""
    return [
        pair
        for number, text in enumerate(texts)
        for pair in parse_address_list(text, field=f"{field}[{number}]")
    ]


def check_send_at(ctx: RequestContext, send_at: Moment) -> Moment:
    """Refuse a time that is in the past, or too far away. Raises InvalidInput."""
    now = ctx.clock()
    if send_at is not None and send_at < now:
        raise InvalidInput(
            f"send_at: {send_at:%Y-%m-%dT%H:%M:%SZ} is in the past; "
            f"the time is {now:%Y-%m-%dT%H:%M:%SZ} now. Give a later time, "
            "or leave it out to send immediately",
            field="send_at",
        )
    if send_at is not None and send_at > now + LONGEST_WAIT:
        raise InvalidInput(
            f"send_at: {send_at:%Y-%m-%dT%H:%M:%SZ} is more than a year ahead; give a time before "
            f"{now + LONGEST_WAIT:%Y-%m-%d}",
            field="send_at",
        )
    return send_at
