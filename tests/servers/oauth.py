"""An authorization server (RFC 6749, 7636, 8628) in place of those of the providers."""

from __future__ import annotations

import base64
import hashlib
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

from tests.servers.web import HttpRequest, HttpResponse, WebServer


class AuthorizationServer:
    """Issues tokens for a code, or for a device code once the person has signed in."""

    def __init__(self, token: str = "a") -> None:
        self.token = token
        self.challenge = ""
        self.pending = 1
        """How many times a device is told to wait."""
        self.refusal = ""
        """Another error for a device, if any."""
        self.web = WebServer(self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.web.__exit__(*error)

    def sign_in(self, url: str) -> str:
        """Act as the browser of a person; returns the URL that it is redirected to."""
        query = {k: v[0] for k, v in parse_qs(urlsplit(url).query).items()}
        self.challenge = query["code_challenge"]
        assert "S256" == query["code_challenge_method"]
        return f"{query['redirect_uri']}?code=the-code&state={quote(query['state'], safe='')}"

    def _answer(self, request: HttpRequest) -> HttpResponse:
        form = {k: v[0] for k, v in parse_qs(request.body.decode()).items()}
        if request.method == "GET":
            return self._page(request)
        if request.path.endswith(("/device", "/devicecode")):
            return HttpResponse(
                body={
                    "device_code": "d",
                    "user_code": "ABCD",
                    "verification_uri": f"{self.web.url}/type-it",
                    "interval": 1,
                }
            )
        if form["grant_type"].endswith("device_code"):
            return self._device()
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        said = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if form["code"] != "the-code" or said != self.challenge:
            return HttpResponse(400, {"error": "invalid_grant"})
        return HttpResponse(
            body={"access_token": self.token, "refresh_token": "r", "expires_in": 3600}
        )

    def _device(self) -> HttpResponse:
        if self.refusal:
            return HttpResponse(400, {"error": self.refusal})
        self.pending -= 1
        if self.pending >= 0:
            return HttpResponse(400, {"error": "authorization_pending"})
        return HttpResponse(body={"access_token": self.token, "expires_in": 3600})

    def _page(self, request: HttpRequest) -> HttpResponse:
        """The sign-in page: it redirects at once."""
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in request.query.items())
        return HttpResponse(302, headers={"Location": self.sign_in(f"{request.path}?{query}")})
