"""The one bucket in which a provider leaves mail for us.

The bucket's own words (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …) say how it is
reached, or the role of the machine does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import obstore
from obstore import exceptions as said
from obstore.store import S3Store

from postroom.errors import InvalidInput, ProviderAuthFailed, ProviderError, TooLarge

_PATIENCE: dict[str, Any] = {
    "timeout": "20s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
}
"""Not as `client_options`: those would hide `AWS_ALLOW_HTTP` and its like in the environment."""

_MOST_KEY_BYTES = 1_024
_SEALED = "x-amz-key"
"""Amazon puts the key of a mail that it has encrypted for KMS into the metadata."""


@dataclass(frozen=True, slots=True)
class MailBucket:
    """Reads mail from one bucket and from no other."""

    name: str
    store: S3Store
    most_bytes: int

    @classmethod
    def named(cls, name: str, most_bytes: int) -> MailBucket:
        return cls(name, S3Store(name, **_PATIENCE), most_bytes)

    async def read(self, key: str) -> bytes:
        """A whole mail. Raises InvalidInput, TooLarge, ProviderError."""
        if not key or len(key.encode("utf-8", "replace")) > _MOST_KEY_BYTES:
            raise InvalidInput("the notice does not say where in the bucket the mail is")
        try:
            found = await obstore.get_async(self.store, key)
            size = found.meta["size"]
            if size > self.most_bytes:
                raise TooLarge(f"the mail has {size} bytes; the limit is {self.most_bytes}")
            if any(_SEALED in str(name).lower() for name in found.attributes):
                raise InvalidInput("the mail is encrypted; in the SES receipt rule turn that off")
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            raise ProviderError("the bucket has no such mail; it may be there later") from error
        except (said.PermissionDeniedError, said.UnauthenticatedError) as error:
            raise ProviderAuthFailed("the bucket refused our login; check its policy") from error
        except said.BaseError as error:
            raise ProviderError("the bucket with the mail does not answer; try again") from error
