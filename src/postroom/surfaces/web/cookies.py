"""The cookie of a session, and the token that its forms carry."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from postroom.calls.web_sessions import SESSION_FOR


def _name(*, is_secure: bool) -> str:
    # With the prefix, a browser takes it over TLS from this host only (RFC 6265bis §4.1.3.2).
    return "__Host-postroom" if is_secure else "postroom"


def session_secret(cookies: Mapping[str, str], *, is_secure: bool) -> str | None:
    """The secret of the session that a browser presents."""
    return cookies.get(_name(is_secure=is_secure))


def session_cookie(secret: str, *, is_secure: bool) -> str:
    """The header `Set-Cookie` for a session; an empty secret takes the cookie away."""
    lasts_s = int(SESSION_FOR.total_seconds()) if secret else 0
    cookie = f"{_name(is_secure=is_secure)}={secret}; Max-Age={lasts_s}; Path=/; HttpOnly"
    return f"{cookie}; SameSite=Strict{'; Secure' if is_secure else ''}"


def form_token(secret: str) -> str:
    """The token of the forms of a session; nobody can compute it without its secret."""
    return hmac.digest(secret.encode(), b"postroom form", "sha256").hex()


def is_form_token(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), form_token(secret).encode())
