"""Requests: the arguments of an operation, their fields and how they are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.fields import FieldInfo

from postroom.errors import InvalidInput
from postroom.mail.text.fold import IGNORABLE

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Characters that could end a header or a line on a terminal."""

SPACE = r"\x09-\x0d\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The characters of `str.isspace`; `\\s` differs between dialects of patterns."""

LINE = rf"^[^{CONTROL}]*$"
NAME = rf"^[^{CONTROL}]*[^{CONTROL}{SPACE}{IGNORABLE}][^{CONTROL}]*$"
"""One line with a visible character."""

SEARCH_TEXT = rf"^[^\x00]*[^\x00{SPACE}{IGNORABLE}][^\x00]*$"
"""A text that is not empty after folding."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LOCAL = rf"{_ATOM}(?:\.{_ATOM})*"
_ADDRESS = rf"{_LOCAL}@{_LABEL}(?:\.{_LABEL})*"
_MAILBOX = rf"(?:[^{CONTROL}\"<>@,;:\\]* <{_ADDRESS}>|{_ADDRESS})"
_TOO_LONG = {"type": "string", "pattern": "[^<>@ ]{65,}@|[^<> ]{255,}|^[^<]{500,}"}

MAILBOX: dict[str, Any] = {"pattern": rf"^{_MAILBOX}$", "not": _TOO_LONG}
"""`ana@example.com` or `Ana <ana@example.com>`."""

MAILBOX_OR_NONE: dict[str, Any] = {"pattern": rf"^(?:{_MAILBOX})?$", "not": _TOO_LONG}

ADDRESS_OR_DOMAIN = {
    "pattern": rf"^(?:@{_LABEL}(?:\.{_LABEL})*|{_ADDRESS})$",
    "maxLength": 254,
    "not": _TOO_LONG,
}
"""`ana@example.com`, or `@example.com` for everybody there."""

SERVED = "{served}"
"""A placeholder for our domains, which only a running server knows."""

OWN_ADDRESS: dict[str, Any] = {"pattern": rf"^{_LOCAL}@{SERVED}$", "not": _TOO_LONG}
USERNAME = r"^[A-Za-z0-9]+(?:(?:\.|[_-]+)[A-Za-z0-9]+)*$"
HANDLE = r"^[A-Za-z0-9_-]+$"
SHORT_HANDLE = r"^[A-Za-z0-9_-]{1,64}$"
HOST = r"^[A-Za-z0-9._:-]+$"
MAILBOX_NAME = r"^[^\x00-\x1f\x7f]+$"
KEY = r"^[^\x00-\x1f\x7f-\x9f]+$"
NOT_BLANK = r"[^\s]"
MESSAGE_ID_OR_NONE = r"^(?:<[!-;=?-~]{1,900}>|[!-;=?-~]{1,900})?$"
MEDIA_TYPE = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*/[A-Za-z0-9][A-Za-z0-9_.+-]*$"
BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
"""Strict base64: padded, without stray bits."""

PATTERN_PROBLEMS = {
    LINE: "must be on one line",
    NAME: "must be on one line, with at least one visible character",
    USERNAME: "must be letters and digits, with . _ or - between them",
    HANDLE: "must be letters, digits, _ and - only",
    SHORT_HANDLE: "must be 1 to 64 letters, digits, _ and -",
    HOST: "must be a host, such as mail.example.com",
    MAILBOX_NAME: "must be on one line, without control characters",
    KEY: "must be on one line, without control characters",
    NOT_BLANK: "must not be blank",
}
"""The problem to report when a text does not match a pattern."""


def argument(description: str, example: object, **constraints: Any) -> Any:
    """A field of a request, with the description and the example that every surface shows."""
    return Field(description=description, examples=[example], **constraints)


@dataclass(frozen=True, slots=True, eq=False)
class Accepts:
    """JSON Schema keywords of a value beyond type and bounds, for OpenAPI; None removes a keyword.

    Compared by identity, since an annotation must be hashable.
    """

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Marks a text that may also be a list, so that a query may repeat it."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint between several arguments as JSON Schema, and its check.

    Without a *problem* to report, it is enforced elsewhere.
    """

    name: str
    arguments: tuple[str, ...]
    schema: Mapping[str, Any]
    problem: str = ""
    is_broken_by: Callable[[Any], bool] = bool


def one_of(
    name: str, arguments: tuple[str, ...], problem: str = "", *, may_be_empty: bool = False
) -> Constraint:
    """At least one of some arguments is present; null counts as absent."""
    given = {"not": {"type": "null"}} if may_be_empty else {"minLength": 1, "minItems": 1}
    branches = [{"required": [a], "properties": {a: given}} for a in arguments]

    def is_broken_by(request: Request) -> bool:
        values = [getattr(request, name) for name in arguments]
        return all(value is None if may_be_empty else not value for value in values)

    return Constraint(name, arguments, {"anyOf": branches}, problem, is_broken_by)


def change_of(arguments: tuple[str, ...], problem: str) -> Constraint:
    """At least one of the things that a request can change is given."""
    return one_of("change", arguments, problem, may_be_empty=True)


def not_both(name: str, first: str, second: str, problem: str = "") -> Constraint:
    """Two texts exclude each other; null and the empty text count as absent."""
    given = {a: {"not": {"type": "null"}, "minLength": 1} for a in (first, second)}
    schema = {"not": {"required": [first, second], "properties": given}}
    return Constraint(
        name, (first, second), schema, problem, lambda r: getattr(r, first) and getattr(r, second)
    )


class Request(BaseModel):
    """The arguments of an operation. The docstring is the description on every surface."""

    constraints: ClassVar[tuple[Constraint, ...]] = ()
    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, validate_by_alias=True, validate_by_name=True
    )

    @model_validator(mode="after")
    def _keeps_constraints(self) -> Self:
        for constraint in self.constraints:
            if constraint.problem and constraint.is_broken_by(self):
                raise ValueError(constraint.problem)
        return self


def _parse_moment(value: object) -> object:
    """Parse RFC 3339 or a bare date; without an offset it is UTC."""
    if value is None or value == "" or isinstance(value, datetime):
        return value or None
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    try:
        seconds = _seconds(*match.groups()) if match else None
    except ValueError:
        seconds = None
    if seconds is None:
        raise ValueError("write it as 2026-01-31 or 2026-01-31T09:30:00Z")
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)


def _seconds(date: str, minutes: str | None, second: str, fraction: str, offset: str | None) -> int:
    """Seconds since 1970, rounded up, since stored times are whole seconds.

    RFC 3339 has a year 0, which `datetime` does not, and a second 60.
    """
    year = max(int(date[:4]), 1)
    moment = datetime.fromisoformat(f"{year:04}{date[4:]}T{minutes or '00:00'}:00+00:00")
    seconds = int(moment.timestamp()) + int(second or 0) + (int(fraction or 0) > 0)
    if offset in (None, "Z", "z"):
        return seconds
    sign = -1 if offset.startswith("-") else 1
    return seconds - sign * (int(offset[1:3]) * 3600 + int(offset[-2:]) * 60)


_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](\d\d:\d\d)(?::([0-5]\d|60)(?:\.(\d{1,100}))?)?"
    r"([Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?",
    re.ASCII,
)
_FIRST, _LAST = -62135596800, 253402300799


def as_number(value: object) -> object:
    """Convert a number that is written as text."""
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")

Id = Annotated[str, Field(min_length=1, max_length=64), Accepts({"pattern": "^[A-Za-z0-9_-]+$"})]
OptionalId = Annotated[
    Annotated[str, Field(max_length=64)] | None,
    BeforeValidator(lambda value: None if value == "" else value),
    Accepts({"pattern": "^[A-Za-z0-9_-]*$"}),
]
_WORD = r"[A-Za-z0-9!#$&'*+=^_`{|}~-]+"
_INBOX = rf"{_WORD}(?:\.{_WORD})*(?:@{_LABEL}(?:\.{_LABEL})*)?"
InboxName = Annotated[str, Field(min_length=1, max_length=254), Accepts({"pattern": f"^{_INBOX}$"})]
"""An inbox by its id or its address; `calls.operation` replaces an address by the id."""

OptionalInboxName = Annotated[
    Annotated[str, Field(max_length=254)] | None,
    BeforeValidator(lambda value: None if value == "" else value),
    Accepts({"pattern": f"^(?:{_INBOX})?$"}),
]
Moment = Annotated[
    datetime | None,
    BeforeValidator(_parse_moment),
    Accepts({"anyOf": [{"format": "date-time"}, {"format": "date"}, {"maxLength": 0}]}),
]
_SECONDS_BACK = r"-(?:0|[1-9][0-9]{0,6})"


def _since(value: object) -> object:
    """The text of where to begin: seconds back may be written as a number."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return (str(value) if is_number else value) or None


def seconds_back(since: str) -> int | None:
    """The number in `-120`, without its sign; None if it is written otherwise."""
    return -int(since) if re.fullmatch(_SECONDS_BACK, since, re.ASCII) else None


def moment_of(written: str) -> datetime | None:
    """The time that a text spells, if it is one."""
    try:
        found = _parse_moment(written)
    except ValueError:
        return None
    assert isinstance(found, datetime)
    return found


Since = Annotated[
    Annotated[str, Field(max_length=64)] | None,
    BeforeValidator(_since),
    Accepts(
        {
            "anyOf": [
                {"pattern": f"^(?:(?:msg|evt)_[A-Za-z0-9_-]+|{_SECONDS_BACK})?$"},
                {"format": "date-time"},
                {"format": "date"},
            ]
        }
    ),
]
"""Where to begin: the id of a message or an event, a time, or seconds back."""

Limit = Annotated[int, argument("Page size.", 20, ge=1, le=100)]
Offset = Annotated[int, argument("Rows to skip.", 0, ge=0, le=2**53)]
Cursor = Annotated[
    # Not empty: after the last page there is no next_cursor, and "" would start again.
    Annotated[str, Field(min_length=1, max_length=16_384)] | None,
    argument("next_cursor of the previous page.", "WzE3Niw5XQ"),
    # Only the server can create one, so there is no example.
    Accepts(
        {
            "readOnly": True,
            "examples": None,
            "description": "next_cursor of the previous page, unchanged; instead of offset.",
        }
    ),
]


class Paged(Request):
    """A request for a slice of a list."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        Constraint(
            "next",
            ("cursor",),
            {},  # As a member of an object, since `readOnly` has a meaning only there in OpenAPI.
            "cursor cannot be combined with offset; drop one",
            lambda request: request.cursor and "offset" in request.model_fields_set,
        ),
    )
    limit: Limit = 50
    offset: Offset = 0
    cursor: Cursor = None


def argument_fields(model: type[Request]) -> dict[str, FieldInfo]:
    """The arguments by the names that callers use: the alias where there is one."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def argument_names(model: type[Request]) -> list[str]:
    return list(argument_fields(model))


def _label(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ValueError("a label is 1 to 128 characters on one line, at least one of them visible")
    return name


LabelName = Annotated[
    str, Field(min_length=1, max_length=128), AfterValidator(_label), Accepts({"pattern": NAME})
]
MailboxName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=MAILBOX_NAME), AfterValidator(str)
]

READERS = {
    "thr": "get_thread",
    "att": "get_attachment_content",
    "inb": "list_messages",
    "drf": "list_drafts",
    "imap:": "imap_get_message",
}
"""The tool for each kind of id that was passed as the id of a message."""

_PREFIXES = {"inbox_id": "inb", "thread_id": "thr", "message_id": "msg"}
_TOOLS = {
    "inb": "list_messages",
    "thr": "get_thread",
    "msg": "get_message",
    "att": "get_attachment_content",
}


def check_kinds(**ids: str | None) -> None:
    """Refuse an id of another kind than its argument. Raises InvalidInput."""
    for name, given in ids.items():
        prefix = (given or "").partition("_")[0]
        if given and prefix != _PREFIXES[name] and prefix in _TOOLS and "_" in given:
            raise InvalidInput(
                f"{name}: {given} is not a {_PREFIXES[name]}_ id; use {_TOOLS[prefix]} for it"
            )


def refuse_other_kind(id_: str, kind: str, readers: dict[str, str]) -> None:
    """Refuse an id of another kind with the name of the tool that takes it."""
    for prefix, tool in readers.items():
        if id_.startswith(prefix if prefix.endswith(":") else f"{prefix}_"):
            raise InvalidInput(f"{id_} is not a {kind}_ id; use {tool} for it")
