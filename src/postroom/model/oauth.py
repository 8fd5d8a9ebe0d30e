"""OAuth: the clients that ask for access, and the tokens of a grant. A grant is a key."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Literal

from postroom.model.values import dataclass

TokenKind = Literal["code", "access", "refresh"]

ACCESS_FOR_S, REFRESH_FOR_S = 3_600, 2_592_000
"""How long an access token is valid, and a refresh token that is not used, unless set."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A program that asks for access.

    Its `id` is the URL of its metadata document, which then says its name and `redirect_uris`, or
    the id that it got when it registered itself.
    """

    id: str
    name: str
    redirect_uris: tuple[str, ...]

    @property
    def is_verified(self) -> bool:
        """Whether a document at its own host describes it. Anybody can register with any name."""
        return is_document_url(self.id)


def is_document_url(client_id: str) -> bool:
    """Whether a client is named by the URL of its metadata document."""
    return client_id.startswith("https://")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A code or token of the grant `key_id`, for one client and one resource (RFC 8707).

    A code also has the redirect URI and the code challenge of its request (RFC 7636).
    """

    kind: TokenKind
    key_id: str
    client_id: str
    resource: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    redirect_uri: str | None = None
    code_challenge: str | None = None


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What the token endpoint answers with."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int
    scopes: tuple[str, ...]
