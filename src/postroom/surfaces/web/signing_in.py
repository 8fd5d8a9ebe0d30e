"""Signing in and out, and the sessions of a person."""

from __future__ import annotations

import re

from postroom.calls import web_sessions
from postroom.errors import NotFound, Unauthenticated
from postroom.model.key import Caller
from postroom.surfaces.web.page import Form, Link, Page, Redirect, Section, Values, Visit

_LOCAL = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~+:,;@!$()*-]{0,4000}", re.ASCII)


def local_path(wanted: str) -> str:
    """A path on this server; the first page for anything else."""
    return wanted if _LOCAL.fullmatch(wanted) else "/"


async def sign_in_page(visit: Visit) -> Values:
    """A form; a link that is looked at is not used up."""
    given = visit.form or visit.query
    return {"link": given.get("link", ""), "next": local_path(given.get("next", "/"))}


async def sign_in(visit: Visit) -> Redirect:
    """Open a session with a link or a key, and end the one that this browser had."""
    link, key = visit.form.get("link", ""), visit.form.get("key", "").strip()
    if not link and not key:
        raise Unauthenticated("enter a key, or open the link that `postroom web` prints")
    services = visit.app.services
    if link:
        secret = await visit.guard(
            link, lambda: web_sessions.sign_in_with_link(services, link, visit.user_agent)
        )
    else:
        secret = await visit.guard(
            key, lambda: web_sessions.sign_in_with_key(services, key, visit.user_agent)
        )
    if visit.signed_in is not None:
        await web_sessions.sign_out(services, *_own(visit))
    return Redirect(local_path(visit.form.get("next", "/")), session=secret)


def _own(visit: Visit) -> tuple[Caller, str]:
    return visit.person.caller, visit.person.session.id


async def sign_out(visit: Visit) -> Redirect:
    """End the session of this browser."""
    await web_sessions.sign_out(visit.app.services, *_own(visit))
    return Redirect("/signin", "signed out", session="")


async def sessions(visit: Visit) -> Values:
    """The sessions that the person may end."""
    found = await web_sessions.sessions_of(visit.app.services, visit.person.caller)
    return {"sessions": found, "own": visit.person.session.id}


async def end_session(visit: Visit) -> Redirect:
    """End one session."""
    session_id, (caller, own) = visit.path["session_id"], _own(visit)
    if not await web_sessions.sign_out(visit.app.services, caller, session_id):
        raise NotFound(f"no session {session_id}; it may have ended already")
    if session_id == own:
        return Redirect("/signin", "signed out", session="")
    return Redirect("/sessions", "ended")


async def end_all_sessions(visit: Visit) -> Redirect:
    """End every session that the person may end, this one included."""
    await web_sessions.sign_out(visit.app.services, visit.person.caller)
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
