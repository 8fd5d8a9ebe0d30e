"""Signing in and out: sessions of a person, their cookie, and the token of their forms."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping

from postroom.calls import authentication
from postroom.calls.authentication import SESSION_LIFETIME
from postroom.errors import NotFound, Unauthenticated
from postroom.model.key import Caller
from postroom.surfaces.web.page import Form, Link, Page, PageRequest, Redirect, Section, Values

_TOKEN_BYTES = 32


def _name(*, is_secure: bool) -> str:
    # With the prefix, a browser takes it over TLS from this host only (RFC 6265bis §4.1.3.2).
    return "__Host-postroom" if is_secure else "postroom"


def session_secret(cookies: Mapping[str, str], *, is_secure: bool) -> str | None:
    """The secret of the session that a browser presents."""
    return cookies.get(_name(is_secure=is_secure))


def session_cookie(secret: str, *, is_secure: bool) -> str:
    """The header `Set-Cookie` for a session; an empty secret removes the cookie."""
    lasts_s = int(SESSION_LIFETIME.total_seconds()) if secret else 0
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


_LOCAL = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~+:,;@!$()*-]{0,4000}", re.ASCII)


def local_path(wanted: str) -> str:
    """A path on this server; the first page for anything else."""
    return wanted if _LOCAL.fullmatch(wanted) else "/"


async def sign_in_page(request: PageRequest) -> Values:
    """A form, so that fetching a link does not use it up."""
    given = request.form or request.query
    return {"link": given.get("link", ""), "next": local_path(given.get("next", "/"))}


async def sign_in(request: PageRequest) -> Redirect:
    """Open a session with a link or a key, and end the one that this browser had."""
    link, key = request.form.get("link", ""), request.form.get("key", "").strip()
    if not link and not key:
        raise Unauthenticated("enter a key, or open the link that `postroom web` prints")
    services = request.app.services
    open_session = authentication.sign_in_with_link if link else authentication.sign_in_with_key
    given = link or key
    secret = await request.throttle(
        given, lambda: open_session(services, given, request.user_agent)
    )
    if request.signed_in is not None:
        await authentication.sign_out(services, *_own(request))
    return Redirect(local_path(request.form.get("next", "/")), session=secret)


def _own(request: PageRequest) -> tuple[Caller, str]:
    return request.person.caller, request.person.session.id


async def sign_out(request: PageRequest) -> Redirect:
    """End the session of this browser."""
    await authentication.sign_out(request.app.services, *_own(request))
    return Redirect("/signin", "signed out", session="")


async def sessions(request: PageRequest) -> Values:
    """The sessions that the person may end."""
    found = await authentication.sessions_of(request.app.services, request.person.caller)
    return {"sessions": found, "own": request.person.session.id}


async def end_session(request: PageRequest) -> Redirect:
    """End one session."""
    session_id, (caller, own) = request.path["session_id"], _own(request)
    if not await authentication.sign_out(request.app.services, caller, session_id):
        raise NotFound(f"no session {session_id}; it may have ended already")
    if session_id == own:
        return Redirect("/signin", "signed out", session="")
    return Redirect("/sessions", "ended")


async def end_all_sessions(request: PageRequest) -> Redirect:
    """End every session that the person may end, this one included."""
    await authentication.sign_out(request.app.services, request.person.caller)
    return Redirect("/signin", "signed out everywhere", session="")


SIGN_IN = Page("/signin", "signin.html", sign_in_page, is_public=True)
SESSIONS = Page("/sessions", "sessions.html", sessions)

SECTION = Section(
    links=(Link("Sessions", "/sessions", scope=None, menu=True),),
    pages=(SESSIONS, SIGN_IN),
    forms=(
        Form("/signin", sign_in, SIGN_IN, is_public=True),
        Form("/signout", sign_out, SESSIONS),
        Form("/sessions/end-all", end_all_sessions, SESSIONS),
        Form("/sessions/{session_id}/end", end_session, SESSIONS),
    ),
    notices={
        "ended": "Session ended.",
        "signed out": "You are signed out.",
        "signed out everywhere": "Signed out of all sessions.",
    },
)
