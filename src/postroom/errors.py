"""The errors that callers see, as one tree.

    MailError                 internal
    ├── InvalidInput          invalid_input      an argument is wrong
    ├── Malformed             malformed          the request cannot be read at all
    ├── Unauthenticated       unauthenticated    the key is missing or unknown
    ├── Forbidden             forbidden          the key lacks a scope
    ├── WriteDisabled         write_disabled     writing is switched off
    ├── NotFound              not_found          it does not exist or is not visible
    ├── FeatureDisabled       feature_disabled   switched off by a setting, or not installed
    ├── Conflict              conflict           it conflicts with the current state
    ├── TooLarge              too_large          too many bytes
    ├── TooSlow               too_slow           the request was not received in time
    ├── RateLimited           rate_limited       too many requests; see `retry_after`
    ├── ProviderError         provider_error     a provider or relay failed
    │   ├── ProviderAuthFailed    provider_auth
    │   └── ProviderTimeout       provider_timeout
    ├── Unavailable           unavailable        at capacity; see `retry_after`
    ├── StorageFull           storage_full       no space left
    ├── Unstorable            internal           the database refuses these values
    ├── TooNew                internal           a newer Postroom has made this database
    └── TooOld                internal           made by a version that cannot be upgraded

A surface keeps its own table from `code` to its words; nothing here knows of HTTP or MCP.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Self, TypeVar


class MailError(Exception):
    """An error with a message for the caller."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    is_untrusted: bool = False
    """Whether it quotes mail or another server; surfaces mark it as untrusted."""

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class InvalidInput(MailError):
    """An argument is wrong; `problems` in the details names each bad field."""

    code = "invalid_input"

    @classmethod
    def of(cls, *problems: tuple[str, str]) -> Self:
        """The error for some fields, each with its problem; what concerns none has no field."""
        text = "; ".join(f"{field}: {words}" if field else words for field, words in problems)
        return cls(text, problems=[{"field": f, "problem": words} for f, words in problems])


class Malformed(MailError):
    """The request cannot be read at all, such as a body that is not JSON."""

    code = "malformed"


class Unauthenticated(MailError):
    """The key is missing or unknown."""

    code = "unauthenticated"


class Forbidden(MailError):
    """The key is valid but lacks a scope."""

    code = "forbidden"


class WriteDisabled(MailError):
    """Writing is switched off."""

    code = "write_disabled"


class NotFound(MailError):
    """The object does not exist, or is not visible to this caller."""

    code = "not_found"


class FeatureDisabled(MailError):
    """A setting has switched this off, or a package is not installed; the message names it."""

    code = "feature_disabled"


class Conflict(MailError):
    """The request conflicts with the current state."""

    code = "conflict"


class TooLarge(MailError):
    """Too many bytes. Counts and lengths are `InvalidInput`."""

    code = "too_large"


class TooSlow(MailError):
    """The client did not finish sending its request in time."""

    code = "too_slow"
    retryable = True


class RateLimited(MailError):
    """Too many requests; retry after `retry_after` seconds."""

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after: int, **details: object) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class ProviderError(MailError):
    """A provider or relay failed or refused."""

    code = "provider_error"
    retryable = True
    is_untrusted = True


class ProviderAuthFailed(ProviderError):
    """A provider or relay refused the login."""

    code = "provider_auth"
    retryable = False


class ProviderTimeout(ProviderError):
    """A provider or relay did not answer in time."""

    code = "provider_timeout"


class Unavailable(MailError):
    """The store does not answer or is at capacity; retry after `retry_after` seconds."""

    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after: int, **details: object) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class StorageFull(MailError):
    """No space is left; nothing was written."""

    code = "storage_full"
    retryable = True


class Unstorable(MailError):
    """The database refuses these values permanently; a batch continues without them."""


class TooNew(MailError):
    """The database has a schema that only a newer Postroom knows."""

    @classmethod
    def of(cls, found: int, known: int) -> Self:
        return cls(
            f"this database has schema {found}, but this Postroom knows only {known}; "
            "run the newer Postroom that created it, or restore a backup"
        )


class TooOld(MailError):
    """The database has a schema of a development version that cannot be upgraded directly."""

    @classmethod
    def of(cls, found: int, oldest: int, commit: str) -> Self:
        what_to_do = (
            f"open it once with commit {commit} of Postroom (`postroom verify`), then with this "
            "version"
            if found < oldest
            else f"restore a backup of schema {oldest}, which commit {commit} has created"
        )
        return cls(
            f"this database has schema {found}, of a development version before 0.1.0 that this "
            f"Postroom cannot upgrade; {what_to_do}"
        )


E = TypeVar("E", bound=MailError)


def untrusted(error: E) -> E:
    """The same error, marked as untrusted."""
    error.is_untrusted = True
    return error


def trusted(error: E) -> E:
    """The same error, which repeats nothing that a provider said."""
    error.is_untrusted = False
    return error


@contextmanager
def about_mail() -> Iterator[None]:
    """Mark errors raised inside as untrusted: they may quote mail."""
    try:
        yield
    except MailError as error:
        error.is_untrusted = True
        raise


def error_for(code: str, message: str, *, retry_after: int = 1, **details: object) -> MailError:
    """The error of a code, as another process reported it; an unknown code is `internal`."""
    kind = next((kind for kind in _kinds(MailError) if kind.code == code), MailError)
    if issubclass(kind, (RateLimited, Unavailable)):
        return kind(message, retry_after=retry_after, **details)
    return kind(message, **details)


def _kinds(root: type[MailError]) -> Iterator[type[MailError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def no_such(kind: str, identifier: str) -> str:
    """The message for an object that does not exist, or is not visible."""
    return (
        f"no {kind} {identifier}; it was removed, or you have no access to it; list or search again"
    )
