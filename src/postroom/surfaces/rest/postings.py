"""What a provider is told of a posting that was not taken, in the codes that it documents.

    provider    never post it again     post it again later
    Mailgun     200, 406                any other, for 8 hours
    Postmark    200, 403                any other, for 10 hours
    Resend      2xx                     any other, for 28 hours
    SendGrid    2xx, 4xx                5xx, for 72 hours
    Amazon      2xx, 4xx                5xx, for up to an hour

A mail for nobody, or one that is too large, is so the next time too: whoever runs the provider's
account sees there at once that it was refused, and why. What may pass must never look final.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.errors import MailError, NotFound, RateLimited, TooLarge, TooSlow

NEVER_AGAIN = {"mailgun": 406, "postmark": 403, "resend": 200}
"""Where our usual codes would mean something else."""

POSTED_BY = "postroom.posted_by"
"""Where the scope of a request names the provider."""

_LATER = 503


def status_for(error: MailError, scope: Mapping[str, Any]) -> int | None:
    """The status of an answer to a provider; None if it is the one that everybody gets."""
    provider = scope.get(POSTED_BY)
    if provider is None:
        return None
    if isinstance(error, (RateLimited, TooSlow)):
        return _LATER
    return NEVER_AGAIN.get(provider) if isinstance(error, (NotFound, TooLarge)) else None
