"""Who we are at Google and Microsoft, and what each of our scopes is called there."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.errors import InvalidInput
from postroom.providers.oauth.signing_in import Client

GOOGLE = {
    "read": "https://www.googleapis.com/auth/gmail.modify",
    "send": "https://www.googleapis.com/auth/gmail.send",
}
"""Nothing smaller than `gmail.modify` lets labels of messages be changed. Drafts are kept here, so
they need nothing there."""

MICROSOFT = {"read": "Mail.ReadWrite", "send": "Mail.Send"}


def google(
    login_url: str,
    token_url: str,
    client_id: str | None,
    client_secret: str | None,
    scopes: Iterable[str],
) -> Client:
    """Google's sign-in; it gives a refresh token only when it is asked like this."""
    if not client_id:
        raise InvalidInput(
            "set POSTROOM_GMAIL_CLIENT_ID and POSTROOM_GMAIL_CLIENT_SECRET to a client of yours; "
            "docs/providers.md says how to make one"
        )
    return Client(
        authorize_url=f"{login_url}/o/oauth2/v2/auth",
        token_url=f"{token_url}/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_named(GOOGLE, scopes),
        extras={"access_type": "offline", "prompt": "consent"},
    )


def microsoft(login_url: str, client_id: str | None, scopes: Iterable[str]) -> Client:
    """Microsoft's sign-in."""
    if not client_id:
        raise InvalidInput(
            "set POSTROOM_OUTLOOK_CLIENT_ID to a client of yours; docs/providers.md says how to "
            "make one"
        )
    return Client(
        authorize_url=f"{login_url}/oauth2/v2.0/authorize",
        token_url=f"{login_url}/oauth2/v2.0/token",
        device_url=f"{login_url}/oauth2/v2.0/devicecode",
        client_id=client_id,
        scopes=("offline_access", "User.Read", *_named(MICROSOFT, scopes)),
    )


def _named(names: dict[str, str], scopes: Iterable[str]) -> tuple[str, ...]:
    """Reading is always asked for: without it there is nothing to keep in step."""
    wanted = {"read", *scopes}
    return tuple(name for scope, name in names.items() if scope in wanted)
