"""The cookie of a session, and the token that its forms carry."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from postroom.calls.web_sessions import SESSION_FOR

_TOKEN_BYTES = 32


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
    """A token for the forms of a session; nobody can compute one without its secret.

    It is masked with random bytes, and so differs in each response: from the length of compressed
    pages nobody can guess it byte by byte (BREACH).
    """
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _xor(mask, _token(secret))).hex()


def is_form_token(given: str, secret: str) -> bool:
    try:
        masked = bytes.fromhex(given)
    except ValueError:
        return False
    mask, rest = masked[:_TOKEN_BYTES], masked[_TOKEN_BYTES:]
    return len(rest) == _TOKEN_BYTES and hmac.compare_digest(_xor(mask, rest), _token(secret))


def _token(secret: str) -> bytes:
    return hmac.digest(secret.encode(), b"postroom form", "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
