"""What a provider answers may be anything; what makes no sense is its error and not ours."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar, cast

from postroom.errors import ProviderError

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_ASKING = (
    "check",
    "identities",
    "changes",
    "fetch",
    "push",
    "save_sent",
    "look",
    "wait",
    "create_alias",
)
"""The methods that ask a provider something."""


@contextmanager
def sense() -> Iterator[None]:
    """Read an answer; raises ProviderError if it has not the shape that was promised."""
    try:
        yield
    except _ODD as error:
        log.warning("provider.unreadable", exc_info=True)
        raise ProviderError("the provider's answer makes no sense") from error


def count_in(value: Any) -> int | None:
    """A number of messages, if it is one."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def makes_sense(cls: type[T]) -> type[T]:
    """Let whatever a class asks of a provider end in sense, or in an error of the provider.

    The shapes come from elsewhere, and to check each of them before it is read would be to write
    each of them twice.
    """
    for name in _ASKING:
        method = vars(cls).get(name)
        if inspect.isasyncgenfunction(method):
            setattr(cls, name, _asking_for_several(method))
        elif inspect.iscoroutinefunction(method):
            setattr(cls, name, asking(method))
    return cls


def asking(ask: F) -> F:
    """Let a question to a provider end in sense, or in an error of the provider."""

    @functools.wraps(ask)
    async def answer(*given: Any, **named: Any) -> Any:
        with sense():
            return await ask(*given, **named)

    return cast(F, answer)


def _asking_for_several(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def ask(*given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        with sense():
            async with aclosing(method(*given, **named)) as parts:
                async for part in parts:
                    yield part

    return ask
