"""Fetches mail that a provider stored for us in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from postroom.errors import (
    InvalidInput,
    ProviderAuthFailed,
    ProviderError,
    TooLarge,
    in_our_words,
)

if TYPE_CHECKING:
    from obstore.store import S3Store  # an extra

_TIMEOUTS: dict[str, Any] = {
    "timeout": "20s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
}
"""Not as `client_options`, which would override `AWS_ALLOW_HTTP` and others in the environment."""

_MAX_KEY_BYTES = 1_024
_KMS_KEY = "x-amz-key"
"""The metadata with the key of a mail that Amazon encrypted with KMS."""


@dataclass(frozen=True, slots=True)
class MailBucket:
    """Reads mail from one bucket."""

    name: str
    store: S3Store
    max_bytes: int

    @classmethod
    def named(cls, name: str, max_bytes: int) -> MailBucket:
        from obstore.store import S3Store

        return cls(name, S3Store(name, **_TIMEOUTS), max_bytes)

    async def read(self, key: str) -> bytes:
        """Read a mail. Raises InvalidInput, TooLarge, ProviderError."""
        if not key or len(key.encode("utf-8", "replace")) > _MAX_KEY_BYTES:
            raise InvalidInput("the notification has no object key of the mail")
        import obstore
        from obstore import exceptions

        try:
            found = await obstore.get_async(self.store, key)
            size = found.meta["size"]
            if size > self.max_bytes:
                raise TooLarge(f"the mail has {size} bytes; the limit is {self.max_bytes}")
            if any(_KMS_KEY in str(name).lower() for name in found.attributes):
                raise InvalidInput("the mail is encrypted; turn that off in the SES receipt rule")
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            absent = ProviderError("the bucket does not have this mail yet")
            raise in_our_words(absent) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            refused = ProviderAuthFailed("the bucket refused the login; check its policy")
            raise in_our_words(refused) from error
        except exceptions.BaseError as error:
            silent = ProviderError("the bucket with the mail does not respond; try again")
            raise in_our_words(silent) from error
