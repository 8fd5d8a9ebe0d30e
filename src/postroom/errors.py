"""Everything we know how to explain to a caller, as one tree.

    MailError                 internal
    ├── InvalidInput          invalid_input      an argument is wrong
    ├── Malformed             malformed          the request cannot be read at all
    ├── Unauthenticated       unauthenticated    no key, or not one of ours
    ├── Forbidden             forbidden          the key lacks a scope
    ├── WriteDisabled         write_disabled     a gate is closed
    ├── NotFound              not_found          it does not exist, or not for this caller
    ├── FeatureDisabled       feature_disabled   switched off by a setting
    ├── Conflict              conflict           the world is not as the request assumes
    ├── TooLarge              too_large          too many bytes
    ├── TooSlow               too_slow           a request that did not come to its end
    ├── RateLimited           rate_limited       too fast; `retry_after` says when
    ├── ProviderError         provider_error     the other side failed
    │   ├── ProviderAuthFailed    provider_auth
    │   └── ProviderTimeout       provider_timeout
    ├── Unavailable           unavailable        not now; `retry_after` says when
    ├── StorageFull           storage_full       no space left; free some and retry
    ├── Unstorable            internal           the database takes this neither now nor later
    └── TooNew                internal           a newer Postroom has made this database

A surface keeps its own table from `code` to its words; nothing here knows of HTTP or MCP.
"""

from __future__ import annotations

from typing import ClassVar, Self


class MailError(Exception):
    """Something we know how to explain to the caller."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class InvalidInput(MailError):
    """An argument is wrong; `problems` in the details names each bad field."""

    code = "invalid_input"


class Malformed(MailError):
    """The request cannot be read at all, such as a body that is not JSON."""

    code = "malformed"


class Unauthenticated(MailError):
    """There is no key, or not one of ours."""

    code = "unauthenticated"


class Forbidden(MailError):
    """The key is good but lacks the scope for this."""

    code = "forbidden"


class WriteDisabled(MailError):
    """A gate that keeps writes out is closed."""

    code = "write_disabled"


class NotFound(MailError):
    """What was asked for does not exist, or not for this caller."""

    code = "not_found"


class FeatureDisabled(MailError):
    """A setting has switched this off; the message names the setting."""

    code = "feature_disabled"


class Conflict(MailError):
    """The world is not as the request assumes."""

    code = "conflict"


class TooLarge(MailError):
    """Too many bytes. Counts and lengths are `InvalidInput`."""

    code = "too_large"


class TooSlow(MailError):
    """The other side began to send a request and did not finish it in time."""

    code = "too_slow"
    retryable = True


class RateLimited(MailError):
    """Too fast; try again after `retry_after` seconds."""

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after: int, **details: object) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class ProviderError(MailError):
    """A server that we depend on failed or refused."""

    code = "provider_error"
    retryable = True


class ProviderAuthFailed(ProviderError):
    """A server that we depend on refused our login."""

    code = "provider_auth"
    retryable = False


class ProviderTimeout(ProviderError):
    """A server that we depend on did not answer in time."""

    code = "provider_timeout"


class Unavailable(MailError):
    """The store does not answer or has too much to do; try again after `retry_after` seconds."""

    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after: int, **details: object) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class StorageFull(MailError):
    """There is no space left; nothing was written."""

    code = "storage_full"
    retryable = True


class Unstorable(MailError):
    """The database refuses these very values: whoever has more to store goes on without them."""


class TooNew(MailError):
    """The database has a schema that only a newer Postroom knows."""

    @classmethod
    def of(cls, found: int, known: int) -> Self:
        return cls(
            f"this database has schema {found}, but this Postroom knows only {known}; "
            "run the newer Postroom that made it, or restore a backup"
        )


def no_such(kind: str, identifier: str) -> str:
    """What to tell who asks for something that is not there, or not for them."""
    return f"no {kind} {identifier}; it may be gone, or not be yours to see: list or search again"
