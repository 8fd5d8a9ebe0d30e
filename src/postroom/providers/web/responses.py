"""Responses of web APIs: their shape, and the hosts that a token may be sent to."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar, cast

import httpx2

from postroom.errors import ProviderError

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_SHAPE_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
_REQUESTING = (
    "check", "identities", "changes", "fetch", "push", "save_sent", "read_states", "wait",
    "create_alias",
)  # fmt: skip
"""The methods of a provider that send requests."""


@contextmanager
def response_errors(provider: str) -> Iterator[None]:
    """Report a response without the documented shape as ProviderError.

    Fields of responses are not checked one by one; a missing one raises KeyError.
    """
    try:
        yield
    except _SHAPE_ERRORS as error:
        log.warning("provider.unexpected_response", exc_info=True)
        raise ProviderError(
            f"unexpected response from {provider}: a field is missing or malformed"
        ) from error


def checks_responses(provider: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class so that its requests run inside `response_errors`."""

    def decorate(cls: type[T]) -> type[T]:
        for name in _REQUESTING:
            if hasattr(cls, name):
                setattr(cls, name, checks_response(provider)(getattr(cls, name)))
        return cls

    return decorate


def checks_response(provider: str) -> Callable[[F], F]:
    """Decorate a coroutine or an asynchronous generator to run inside `response_errors`."""

    def decorate(request: F) -> F:
        @functools.wraps(request)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            with response_errors(provider):
                return await request(*args, **kwargs)

        @functools.wraps(request)
        async def checked_stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            with response_errors(provider):
                async with aclosing(request(*args, **kwargs)) as parts:
                    async for part in parts:
                        yield part

        return cast(F, checked_stream if inspect.isasyncgenfunction(request) else checked)

    return decorate


def message_count(value: Any) -> int | None:
    """A number of messages; None if the value cannot be one."""
    return value if type(value) is int and 0 <= value < 2**53 else None


TOKEN_HOSTS: Mapping[str, tuple[str, ...]] = {
    # Fastmail answers from the data centre of the mailbox (phl.api.fastmail.com) and serves
    # downloads from another domain (www.fastmailusercontent.com).
    "api.fastmail.com": (".api.fastmail.com", ".fastmailusercontent.com"),
}
"""Other hosts that get the token, by the configured host; a dot matches every subdomain."""

UPLOAD_HOSTS: Mapping[str, tuple[str, ...]] = {
    "graph.microsoft.com": ("outlook.office.com", "outlook.office365.com"),
    "graph.microsoft.us": ("outlook.office365.us",),
    "dod-graph.microsoft.us": ("outlook-dod.office365.us",),
    "microsoftgraph.chinacloudapi.cn": ("partner.outlook.cn",),
}
"""Upload hosts of Microsoft Graph. An upload URL is itself secret; it gets no token."""


def check_url(url: str, base: str, others: Mapping[str, tuple[str, ...]]) -> httpx2.URL:
    """Parse a URL that a provider named. Raises ProviderError unless it has the origin of *base*.

    It is parsed by the client that sends the request, so that both see the same host.
    """
    try:
        there, here = httpx2.URL(url), httpx2.URL(base)
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise ProviderError("the provider named an invalid URL") from None
    known = others.get(here.host, ()) if _origin(here) == ("https", here.host, 443) else ()
    host = there.host.rstrip(".")
    is_known = _origin(there) == ("https", host, 443) and any(
        host.endswith(name) if name.startswith(".") else host == name for name in known
    )
    if there.userinfo or not (_origin(there) == _origin(here) or is_known):
        raise ProviderError("the provider named a URL at another host; no login is sent there")
    return there


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    default = 443 if url.scheme == "https" else 80
    return url.scheme, url.host.rstrip("."), url.port or default
