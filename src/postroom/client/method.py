"""Operations as methods: declared once, for both clients.

A method has a signature and a description, and no body: `operation` turns its arguments into a
`Call`, which the client carries out. Type checkers see the same signature on both clients, with
the answer, or with a coroutine of it.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints, overload
from urllib.parse import quote, urlencode

from msgspec import UNSET

from postroom.client.events import AsyncEventStream, EventStream
from postroom.client.files import as_inputs
from postroom.client.responses import AsyncPages, Page

Addresses = str | Sequence[str]
"""`ana@example.com` or `Ana <ana@example.com>`: one, or several."""

P = ParamSpec("P")
T = TypeVar("T")
_WITHOUT_BODY = ("GET", "DELETE")
_WAIT = "/v1/messages/wait"
_EXTRACT_BACK_S = 121
_IN_PATH = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Call:
    """A request that was not sent yet, and the type of its response."""

    method: str
    path: str
    result: Any
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Whether it can be sent again although it may have been carried out."""

    @property
    def target(self) -> str:
        """The path with its query."""
        pairs = [
            (name, _in_query(one))
            for name, value in self.query.items()
            for one in (value if isinstance(value, (list, tuple)) else [value])
        ]
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path

    @property
    def is_wait(self) -> bool:
        """Whether the response comes only when a message arrives or the timeout ends."""
        return self.path == _WAIT

    def after(self, elapsed_s: float) -> Call:
        """The same call after some time has passed: a wait continues from its original start."""
        if not self.is_wait:
            return self
        left_s = max(1, round(float(self.query.get("timeout_s", 60)) - elapsed_s))
        back_s = math.ceil(elapsed_s) + (_EXTRACT_BACK_S if "extract" in self.query else 1)
        return replace(self, query={"since": f"-{back_s}", **self.query, "timeout_s": left_s})

    def at(self, cursor: str) -> Call:
        """The same list from a cursor on."""
        kept = {name: value for name, value in self.query.items() if name != "offset"}
        return replace(self, query={**kept, "cursor": cursor})


class Waiting(ABC):
    """A client whose methods block until the response."""

    @abstractmethod
    def perform(self, call: Call) -> Any:
        """Carry out a call."""


class Awaited(ABC):
    """A client whose methods are coroutines."""

    @abstractmethod
    async def perform(self, call: Call) -> Any:
        """Carry out a call."""


class _Declared(Generic[P]):
    """The base of the three kinds of methods."""

    def __init__(
        self, declared: Callable[Concatenate[Any, P], Any], method: str, path: str, *, raw: bool
    ) -> None:
        self.__doc__, self.__name__ = declared.__doc__, declared.__name__
        self._declared, self._method, self._path, self._raw = declared, method, path, raw
        self._signature = functools.cache(lambda: inspect.signature(declared))
        self._result = functools.cache(lambda: get_type_hints(declared)["return"])

    def call(self, *args: Any, **kwargs: Any) -> Call:
        """The call for some arguments. Raises TypeError, InvalidInput."""
        try:
            bound = self._signature().bind(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}(): {error}") from None
        bound.apply_defaults()
        absent = UNSET if self._method == "PATCH" else None
        given = {
            name.removesuffix("_"): _plain(name, value)
            for name, value in list(bound.arguments.items())[1:]
            if value is not absent
        }
        once = "idempotency_key" in bound.arguments
        if once:
            given.setdefault("idempotency_key", uuid.uuid4().hex)
        path = _IN_PATH.sub(lambda found: quote(str(given.pop(found[1])), safe=""), self._path)
        call = Call(self._method, path, self._result(), repeatable=once or self._method == "GET")
        return self._filled(call, given)

    def _filled(self, call: Call, given: dict[str, Any]) -> Call:
        if self._raw:
            raw, headers = given.pop("raw"), given.pop("headers", {})
            return replace(call, raw=raw, headers=headers, query=given)
        if self._method in _WITHOUT_BODY:
            return replace(call, query=given)
        return replace(call, body=given)

    def _bound(self, client: Any, owner: type | None, perform: Callable[..., Any]) -> Any:
        functools.update_wrapper(perform, self._declared)
        return perform if client is None else perform.__get__(client, owner)


class Operation(_Declared[P], Generic[P, T]):
    """A method that returns a value."""

    @overload
    def __get__(self, client: Waiting, owner: type | None = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: Awaited, owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, owner: type | None = None) -> Any:
        def wait(client: Waiting, *args: Any, **kwargs: Any) -> Any:
            return client.perform(self.call(*args, **kwargs))

        async def awaited(client: Awaited, *args: Any, **kwargs: Any) -> Any:
            return await client.perform(self.call(*args, **kwargs))

        is_awaited = owner is not None and issubclass(owner, Awaited)
        return self._bound(client, owner, awaited if is_awaited else wait)


class Pages(_Declared[P], Generic[P, T]):
    """A method that returns a page of a list."""

    @overload
    def __get__(self, client: Waiting, owner: type | None = None) -> Callable[P, Page[T]]: ...
    @overload
    def __get__(self, client: Awaited, owner: type | None = None) -> Callable[P, AsyncPages[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, owner: type | None = None) -> Any:
        def wait(client: Waiting, *args: Any, **kwargs: Any) -> Any:
            return client.perform(self.call(*args, **kwargs))

        def awaited(client: Awaited, *args: Any, **kwargs: Any) -> AsyncPages[Any]:
            call = self.call(*args, **kwargs)
            return AsyncPages(lambda: client.perform(call))

        is_awaited = owner is not None and issubclass(owner, Awaited)
        return self._bound(client, owner, awaited if is_awaited else wait)


class Stream(_Declared[P]):
    """A method that yields events as they happen."""

    @overload
    def __get__(self, client: Waiting, owner: type | None = None) -> Callable[P, EventStream]: ...
    @overload
    def __get__(
        self, client: Awaited, owner: type | None = None
    ) -> Callable[P, AsyncEventStream]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, owner: type | None = None) -> Any:
        def opened(client: Any, *args: Any, **kwargs: Any) -> Any:
            return client.open_stream(self.call(*args, **kwargs))

        return self._bound(client, owner, opened)


def operation(
    method: str, path: str, *, raw: bool = False
) -> Callable[[Callable[Concatenate[Any, P], T]], Operation[P, T]]:
    """Declare a method of an endpoint; its argument `raw` may be the body."""
    return lambda declared: Operation(declared, method, path, raw=raw)


def pages(
    method: str, path: str
) -> Callable[[Callable[Concatenate[Any, P], Page[T]]], Pages[P, T]]:
    """Declare a method that lists."""
    return lambda declared: Pages(declared, method, path, raw=False)


def stream(
    method: str, path: str
) -> Callable[[Callable[Concatenate[Any, P], EventStream]], Stream[P]]:
    """Declare a method that streams events."""
    return lambda declared: Stream(declared, method, path, raw=False)


def _plain(name: str, value: Any) -> Any:
    """An argument in the form that the server accepts."""
    if name == "attachments" and value is not None:
        return as_inputs(value)
    if isinstance(value, datetime):  # as everywhere in Python, one without a zone is local
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return list(value) if isinstance(value, (tuple, set, frozenset)) else value


def _in_query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
