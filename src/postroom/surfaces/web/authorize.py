"""The consent page of the OAuth server: who asks, for what, and what the person gives them.

Nothing leads to the client before the person has pressed a button or followed a link here, also if
the request is wrong: otherwise a link to this server would be one to any page (RFC 9700 §4.11).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from postroom.errors import InvalidInput
from postroom.model.key import Scope
from postroom.operations.oauth_grants import AccessRequest, get_access_request, grant_access
from postroom.surfaces.web.keys import (
    APPROVAL_WORDS,
    EXPIRIES,
    KINDS,
    inbox_limit,
    limited_to,
    scopes_of_kind,
)
from postroom.surfaces.web.page import Form, Page, Redirect, Section, Values, Visit

_PARAMETERS = (
    *("client_id", "redirect_uri", "response_type", "code_challenge", "code_challenge_method"),
    *("resource", "scope"),
)
_APPROVALS = ("always", "risky")
_KINDS = tuple(
    kind
    if Scope.SEND not in kind.scopes
    else replace(
        kind,
        title="Read, organise and send with approval",
        words="Also sends. Messages to other servers are held until you approve them.",
    )
    for kind in KINDS
)


def _request(visit: Visit) -> dict[str, str]:
    """The request of the client, which is in the query also when a form is sent."""
    given = {name: visit.query[name] for name in _PARAMETERS if visit.query.get(name)}
    if "client_id" not in given:
        raise InvalidInput(
            "client_id: a program leads you here when it asks for access to this Postroom; this "
            "link names none"
        )
    return {"issuer": visit.base_url, **given}


def _answer_url(visit: Visit, redirect_uri: str, **answer: str) -> str:
    """Where the client gets its answer, with its state and our name (RFC 9207)."""
    state = {"state": visit.query["state"]} if "state" in visit.query else {}
    query = urlencode({**answer, **state, "iss": visit.base_url}, quote_via=quote)
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{query}"


def _form_target(redirect_uri: str) -> str:
    """The source expression of a redirect; Chromium follows no other after a form (CSP 3)."""
    url = urlsplit(redirect_uri)
    is_named = url.scheme in ("http", "https") and not url.netloc.startswith("[")
    return f"{url.scheme}://{url.netloc}" if is_named else f"{url.scheme}:"


async def consent(visit: Visit) -> Values:
    """What a client asks for, with the choices of the person."""
    asked = await visit.call(get_access_request, **_request(visit))
    code, problem = asked.error or ("", "")
    allowed = {*asked.scopes} & visit.person.caller.scopes
    return {
        "asked": asked,
        "place": _place(asked),
        "problem": problem,
        "back": _answer_url(visit, asked.redirect_uri, error=code, error_description=problem),
        "query": urlencode(dict(visit.query)),
        "kinds": [kind for kind in _KINDS if set(kind.scopes) <= allowed],
        "limit": await inbox_limit(visit),
        "approvals": {name: APPROVAL_WORDS[name] for name in _APPROVALS},
        "expiries": EXPIRIES,
        "given": visit.form,
        "chosen": {"inbox": set(visit.posted.all("inbox"))},
        "form_target": _form_target(asked.redirect_uri),
    }


def _place(asked: AccessRequest) -> str:
    """Where the answer goes, in words."""
    url = urlsplit(asked.redirect_uri)
    if url.scheme == "https":
        return asked.host
    if url.scheme == "http":
        return f"a program on this computer ({asked.host})"
    return f"a program on this computer that opens {asked.host} links"


async def decide(visit: Visit) -> Redirect:
    """Give the client what was chosen, or nothing, and lead back to it."""
    given = _request(visit)
    asked = await visit.call(get_access_request, **given)
    if visit.form.get("decision") != "allow":
        refused = {"error": "access_denied", "error_description": "The person said no."}
        return Redirect(_answer_url(visit, asked.redirect_uri, **refused))
    grant = await visit.call(grant_access, **given, **_choices(visit))
    return Redirect(_answer_url(visit, asked.redirect_uri, code=grant.code))


def _choices(visit: Visit) -> dict[str, Any]:
    form = visit.form
    chosen: dict[str, Any] = {"scopes": scopes_of_kind(form.get("kind", ""))}
    chosen |= limited_to(visit, "inboxes", "inbox")
    return chosen | {name: form[name] for name in ("approval", "expires_at") if form.get(name)}


AUTHORIZE = Page("/authorize", "authorize.html", consent)

SECTION = Section(
    pages=(AUTHORIZE,),
    forms=(Form("/authorize", decide, AUTHORIZE),),
)
