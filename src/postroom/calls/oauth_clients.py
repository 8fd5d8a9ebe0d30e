"""OAuth clients: their metadata documents, registration, and where they may be redirected to.

A client is named by the HTTPS URL of a JSON document (OAuth Client ID Metadata Document), or has
registered itself (RFC 7591). All are public clients, which PKCE protects. Documents are fetched for
a person who is signed in, and for nobody else: a stranger cannot make this server send requests.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

from postroom.errors import FeatureDisabled, InvalidInput, MailError, NotFound
from postroom.mail.text.invisible import cleaned
from postroom.model.key import OAuthClient, is_document_url
from postroom.pipeline.services import Services

UNUSED_FOR = timedelta(days=1)
"""How long a client that registered may take to be let in."""

MAX_ID_CHARS, MAX_URI_CHARS, MAX_URIS = 500, 1_000, 20
_NAME_CHARS = 80
_LOOPBACK = frozenset({"127.0.0.1", "[::1]", "localhost"})
_APP_SCHEMES = frozenset(
    ("claude", "codex", "cursor", "goose", "jetbrains", "kiro", "lmstudio", "raycast", "trae",
     "vscode", "vscode-insiders", "vscodium", "warp", "windsurf", "zed")
)  # fmt: skip
"""Schemes of known programs that are not a domain in reverse, as RFC 8252 §7.1 requires."""

_URI = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+", re.ASCII)
"""The characters of a URI without a fragment (RFC 3986)."""
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_SHARED_SECRETS = frozenset({"client_secret_basic", "client_secret_post", "client_secret_jwt"})


async def find_client(services: Services, client_id: str) -> OAuthClient:
    """The client with this id; its document is fetched unless it was a moment ago.

    Raises NotFound or InvalidInput, with what the person can do.
    """
    if is_document_url(client_id):
        return services.oauth.recent.get(client_id) or await _fetch_client(services, client_id)
    found = None
    if len(client_id) <= MAX_ID_CHARS:
        found = await services.store.oauth_client(client_id, services.clock())
    if found is None:
        raise NotFound(
            f"client_id: no client {client_id[:100]!r} has registered here, or its registration "
            "has expired. Remove this server from the program and add it again. Programs register "
            "at /register, or use the HTTPS URL of a client ID metadata document as their client_id"
        )
    return found


async def is_known(services: Services, client_id: str) -> bool:
    """Whether a client can have tokens, without a request to its document."""
    if is_document_url(client_id):
        return True
    return (
        len(client_id) <= MAX_ID_CHARS
        and await services.store.oauth_client(client_id, services.clock()) is not None
    )


async def _fetch_client(services: Services, client_id: str) -> OAuthClient:
    _check_document_url(client_id)
    try:
        body = await services.oauth.documents.get(client_id, {"Accept": "application/json"})
    except MailError as error:
        raise InvalidInput(f"client_id: its metadata document cannot be read: {error}") from error
    client = _client_of(client_id, body)
    services.oauth.recent.put(client)
    return client


def _check_document_url(client_id: str) -> None:
    """Raise InvalidInput for what the draft does not allow as the URL of a document (§3)."""
    url = _parsed(client_id)
    if len(client_id) > MAX_ID_CHARS or url is None or url.path in ("", "/"):
        raise InvalidInput(
            "client_id: write it as https://host/path, without user, password or fragment, in at "
            f"most {MAX_ID_CHARS} characters"
        )
    if _DOT_SEGMENT.search(url.path):
        raise InvalidInput("client_id: its path must not contain . or .. as a segment")


def _client_of(client_id: str, body: bytes) -> OAuthClient:
    """The client that a document describes. Raises InvalidInput."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidInput("client_id: its metadata document is not a JSON object")
    if document.get("client_id") != client_id:
        raise InvalidInput("client_id: its metadata document names another client_id")
    method = document.get("token_endpoint_auth_method", "none")
    if method in _SHARED_SECRETS or "client_secret" in document:
        raise InvalidInput("client_id: its metadata document is public, and so has no secret")
    return OAuthClient(client_id, _name(document), checked_redirects(document))


def _name(metadata: dict[str, Any]) -> str:
    name = metadata.get("client_name")
    text = " ".join(cleaned(name).split()) if isinstance(name, str) else ""
    return text[:_NAME_CHARS] or "A program without a name"


def checked_redirects(metadata: dict[str, Any]) -> tuple[str, ...]:
    """The redirect URIs of a client. Raises InvalidInput for one that cannot be allowed."""
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_URIS:
        raise InvalidInput(f"redirect_uris: give 1 to {MAX_URIS} of them")
    for uri in uris:
        _check_redirect(uri)
    return tuple(uris)


def _check_redirect(uri: object) -> None:
    """HTTPS anywhere, HTTP on loopback (RFC 8252 §7.3), and the schemes of programs (§7.1)."""
    url = _parsed(uri) if isinstance(uri, str) and len(uri) <= MAX_URI_CHARS else None
    if url is None:
        raise InvalidInput("redirect_uris: not a URI without user, password and fragment")
    if url.scheme == "https" or is_loopback(url):
        return
    is_app = "." in url.scheme or url.scheme in _APP_SCHEMES
    if url.scheme in ("http", "https") or not is_app:
        raise InvalidInput(
            f"redirect_uris: {url.scheme} is not allowed here; use https, http on 127.0.0.1, [::1] "
            "or localhost, or a scheme of your own that is your domain in reverse (RFC 8252)"
        )


def _parsed(uri: str) -> SplitResult | None:
    """The parts of a URI; None if it has a user, a fragment, or over HTTP no proper host."""
    try:
        url = urlsplit(uri)
        is_port_valid = url.port != 0
    except ValueError:
        return None
    is_web = url.scheme in ("http", "https")
    if is_web and not (is_port_valid and _HOST.fullmatch(url.netloc)):
        return None
    # `urlsplit` drops what a browser might see, such as a line end, and folds the scheme
    is_plain = _URI.fullmatch(uri) and "@" not in url.netloc and url.geturl() == uri
    return url if is_plain and _SCHEME.fullmatch(url.scheme) else None


def is_loopback(url: SplitResult) -> bool:
    """Whether a redirect stays on the machine of the browser."""
    host = url.netloc.rpartition(":")[0] if url.port is not None else url.netloc
    return url.scheme == "http" and host in _LOOPBACK


def is_registered(client: OAuthClient, redirect_uri: str) -> bool:
    """Whether a client may be redirected there: exactly, but for the port on loopback."""
    if redirect_uri in client.redirect_uris:
        return True
    url = _parsed(redirect_uri) if len(redirect_uri) <= MAX_URI_CHARS else None
    if url is None or not is_loopback(url):
        return False
    return any(
        _without_port(url) == _without_port(one)
        for one in map(urlsplit, client.redirect_uris)
        if is_loopback(one)
    )


def _without_port(url: SplitResult) -> str:
    host = url.netloc.rpartition(":")[0] if url.port is not None else url.netloc
    return url._replace(netloc=host).geturl()


async def register_client(services: Services, metadata: dict[str, Any]) -> OAuthClient:
    """Register a client (RFC 7591). Raises InvalidInput, FeatureDisabled."""
    if not services.oauth.registration:
        raise FeatureDisabled("clients cannot register here: POSTROOM_OAUTH_REGISTRATION is off")
    now = services.clock()
    uris = checked_redirects(metadata)
    client = OAuthClient(services.new_id("cli"), _name(metadata), uris)
    await services.store.add_oauth_client(client, now=now, expires_at=now + UNUSED_FOR)
    return client
