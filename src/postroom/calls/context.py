"""The context of a request (caller, services, cursors of its lists), and its checked arguments."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import ValidationError

from postroom.admission.rate_limits import FairQueue, RateLimits
from postroom.calls.request import PATTERN_PROBLEMS, Request, argument_fields, argument_names
from postroom.errors import InvalidInput
from postroom.model.event import Via
from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.model.page import Found, Page, Slice
from postroom.model.values import dataclass
from postroom.model.view import Everything
from postroom.pipeline.services import Services

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from postroom.calls.request import Paged


T = TypeVar("T")
_NONCE_BYTES, _TAG_BYTES, _NUMBER_BYTES = 12, 16, 8
_PURPOSE = b"postroom cursors 2"
_BLOCK = 32
"""Texts are padded to whole blocks, so that the length of a cursor does not reveal its place."""

_NUMBER, _TEXT, _END = b"n", b"t", b"\x80"
_INVALID = (
    "cursor: not valid for this list; pass next_cursor of the previous page unchanged, with the "
    "same filters, or start again without it"
)


@dataclass(frozen=True, slots=True)
class Cursors:
    """Issues and opens the cursors of one caller, with the secret of the store."""

    secret: bytes
    caller: str = ""

    def of(self, caller: str) -> Cursors:
        """The cursors of another caller."""
        return replace(self, caller=caller)

    def slice(self, request: Paged) -> Slice:
        """The slice that a request asks for. Raises InvalidInput on an invalid cursor."""
        after = None
        if request.cursor:
            after = tuple(_parts(self.unseal(request.cursor, _binding_of(request))))
        return Slice(request.limit, request.offset, after)

    def page(self, request: Paged, found: Found[T]) -> Page[T]:
        """The page that answers a request."""
        cursor = None
        if found.next:
            cursor = self.seal(b"".join(map(_packed, found.next)), _binding_of(request))
        return Page(found.rows, found.total, request.limit, found.offset, next_cursor=cursor)

    def seal(self, body: bytes, binding: bytes) -> str:
        """A cursor that carries *body*, valid with the same *binding* only."""
        (cipher, nonce_key), associated_data = _cipher(self.secret), self._associated_data(binding)
        padded = body + _END
        padded += bytes(-len(padded) % _BLOCK)
        nonce = hmac.digest(nonce_key, associated_data + padded, "sha256")[:_NONCE_BYTES]
        return _text(nonce + cipher.encrypt(nonce, padded, associated_data))

    def unseal(self, cursor: str, binding: bytes) -> bytes:
        """The body. Raises InvalidInput if it is forged, or of another caller or list."""
        data = _bytes(cursor)
        padded = self._decrypted(data, binding) if _text(data) == cursor else None
        if padded is None:
            raise InvalidInput(_INVALID)
        return padded[: padded.rindex(_END)]

    def _decrypted(self, data: bytes, binding: bytes) -> bytes | None:
        if len(data) < _NONCE_BYTES + _BLOCK + _TAG_BYTES:
            return None
        from cryptography.exceptions import InvalidTag

        nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        try:
            cipher, _ = _cipher(self.secret)
            return cipher.decrypt(nonce, sealed, self._associated_data(binding))
        except InvalidTag:
            return None

    def _associated_data(self, binding: bytes) -> bytes:
        return hashlib.sha256(self.caller.encode()).digest() + binding


@lru_cache(maxsize=4)
def _cipher(secret: bytes) -> tuple[AESGCM, bytes]:
    """The cipher of the cursors, and the key of their nonces.

    Their keys are derived from the secret of the store by HKDF with SHA-256 (RFC 5869), no salt.
    """
    # Imported on first use: it is slow to load.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = hmac.digest(bytes(32), secret, "sha256")
    first = hmac.digest(key, _PURPOSE + b"\x01", "sha256")
    return AESGCM(first), hmac.digest(key, first + _PURPOSE + b"\x02", "sha256")


def _packed(part: int | str) -> bytes:
    """A part of a place as bytes; numbers have a fixed size."""
    if isinstance(part, int):
        return _NUMBER + part.to_bytes(_NUMBER_BYTES, "big", signed=True)
    text = part.encode("utf-8", "surrogatepass")
    return _TEXT + len(text).to_bytes(_NUMBER_BYTES, "big") + text


def _parts(body: bytes) -> Iterator[int | str]:
    at = 0
    while at < len(body):
        number = int.from_bytes(body[at + 1 : at + 1 + _NUMBER_BYTES], "big", signed=True)
        kind, at = body[at : at + 1], at + 1 + _NUMBER_BYTES
        if kind == _NUMBER:
            yield number
        else:
            yield body[at : at + number].decode("utf-8", "surrogatepass")
            at += number


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(cursor: str) -> bytes:
    """The bytes of a cursor; none if it is not base64."""
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        return b""


def _binding_of(request: Paged) -> bytes:
    """A digest of all arguments except those of the page itself."""
    filters = request.model_dump_json(exclude={"limit", "offset", "cursor"}, exclude_defaults=True)
    return hashlib.sha256(f"{type(request).__name__}{filters}".encode()).digest()


Report = Callable[[float, str], Awaitable[None]]
"""Reports progress to a waiting caller: seconds, and what is being done."""


async def _no_report(_seconds: float, _activity: str) -> None:
    """The default: no progress is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext(Services):
    """The services, and the caller of a request."""

    caller: Caller
    cursors: Cursors
    via: Via = "cli"
    rates: RateLimits | None = None
    fair_queue: FairQueue | None = None
    report: Report = _no_report

    @property
    def visible(self) -> Visible:
        """The inboxes that exist for this caller."""
        return self.caller.inboxes

    @property
    def is_limited(self) -> bool:
        """Whether the caller is limited to some inboxes."""
        return not isinstance(self.visible, Everything)


R = TypeVar("R", bound=Request)


def parse_request(model: type[R], arguments: Mapping[str, Any]) -> R:
    """Build a request. Raises InvalidInput with `problems`, one for each bad field."""
    problems: list[tuple[str, str]] = []
    given = _with_scalars(model, arguments, problems)
    if not problems:
        try:
            return model.model_validate(given, by_alias=True, by_name=False)
        except ValidationError as error:
            problems = [_problem(model, item) for item in error.errors(include_url=False)]
    raise InvalidInput.of(*problems)


def _with_scalars(
    model: type[Request],
    arguments: Mapping[str, Any],
    problems: list[tuple[str, str]],
    at: str = "",
) -> dict[str, object]:
    """The arguments with numbers and booleans in place of their texts, also inside of objects."""
    types, given = _scalar_types(model), dict[str, object]()
    for name, value in arguments.items():
        kind = types.get(name)
        if isinstance(value, dict) and kind is not None and issubclass(kind, Request):
            given[name] = _with_scalars(kind, value, problems, f"{at}{name}.")
            continue
        try:
            given[name] = _scalar(kind, value)
        except ValueError as error:
            problems.append((at + name, str(error)))
    return given


@cache
def _scalar_types(model: type[Request]) -> dict[str, type]:
    """The type of each argument that is a whole number, a boolean or an object."""
    found: dict[str, type] = {}
    for name, info in argument_fields(model).items():
        types = [t for t in (info.annotation, *get_args(info.annotation)) if isinstance(t, type)]
        kinds = [kind for kind in (bool, int, Request) if any(issubclass(t, kind) for t in types)]
        if kinds:
            found[name] = next(t for t in types if issubclass(t, kinds[0]))
    return found


def _scalar(kind: type | None, value: object) -> object:
    """Convert numbers and booleans that are written as text. Raises ValueError."""
    if _has_nul(value):
        raise ValueError("must not contain the character NUL")
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind is int and isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    if kind is bool and not (value is None or isinstance(value, bool)):
        raise ValueError("must be true or false")
    if kind is int and isinstance(value, (bool, str)):
        raise ValueError("must be a whole number")
    return value


_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,99})", re.ASCII)


def _has_nul(value: object) -> bool:
    """Whether a value contains NUL, which PostgreSQL cannot store in a text."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _problem(model: type[Request], item: Any) -> tuple[str, str]:
    message = str(item["msg"]).removeprefix("Value error, ")
    problem = re.sub(r"^\w+ should (be|have)\b", r"must \1", message)
    problem = problem.replace(" after validation", "")
    problem = _PLAIN.get(str(item["type"]), problem)
    if item["type"] == "extra_forbidden":
        *outer, name = item["loc"]
        problem = _unknown(str(name), argument_names(_model_at(model, outer)))
    elif item["type"] == "missing":
        problem = "is required"
    elif item["type"] == "string_pattern_mismatch":
        problem = PATTERN_PROBLEMS.get(item["ctx"]["pattern"], problem)
    return _path(item["loc"]), problem


def _model_at(model: type[Request], place: Iterable[str | int]) -> type[Request]:
    """The model of the object at this place in a request."""
    for name in place:
        info = next((i for n, i in model.model_fields.items() if name in (n, i.alias)), None)
        model = next(_models_in(info.annotation), model) if info else model
    return model


def _models_in(annotation: Any) -> Iterator[type[Request]]:
    """The models in an annotation, such as that in `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Request):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


_PLAIN = {"list_type": "must be a list", "model_type": "must be an object"}


def _path(place: tuple[str | int, ...]) -> str:
    """The path of a value: `attachments[0].filename`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"unknown argument; did you mean {close[0]}?"
    return f"unknown argument; known are {', '.join(known)}" if known else "takes no arguments"
