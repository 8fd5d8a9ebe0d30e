"""A client of the Gmail API, limited to what we need. It knows nothing of our model.

Reference: https://developers.google.com/workspace/gmail/api/reference/rest
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from postroom.errors import ProviderError
from postroom.model.account import RateLimits
from postroom.providers.web.api import Api, ApiRefused, none_if_404
from postroom.providers.web.history_reader import HistoryExpired, next_page

RATES = RateLimits(requests_per_second=40, burst=50)
"""Google allows 250 quota units per second and user; reading a message costs 5."""

_ME = "/gmail/v1/users/me"
_PAGE = 500
JSON_BYTES = 5 * 2**20
"""A larger message must go to the upload URL."""


def _path(key: str, action: str = "") -> str:
    return f"{_ME}/messages/{quote(key, safe='')}{action}"


class GmailClient:
    """One account at Gmail."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def profile(self) -> dict[str, Any]:
        return dict(await self.api.json("GET", f"{_ME}/profile"))

    async def labels(self) -> list[dict[str, Any]]:
        return list((await self.api.json("GET", f"{_ME}/labels")).get("labels", []))

    async def create_label(self, name: str) -> dict[str, Any]:
        visibility = {"labelListVisibility": "labelShow", "messageListVisibility": "show"}
        body = {"name": name, **visibility}
        return dict(await self.api.json("POST", f"{_ME}/labels", body=body))

    async def list_ids(
        self, *, larger_than: int | None = None, label: str | None = None
    ) -> AsyncIterator[list[str]]:
        """The ids of all messages or of some, newest first, with Spam and Trash."""
        params = {"includeSpamTrash": "true"}
        params |= {"q": f"larger:{larger_than}"} if larger_than is not None else {}
        params |= {"labelIds": label} if label is not None else {}
        async for page in self._pages(f"{_ME}/messages", params):
            yield [str(message["id"]) for message in page.get("messages", [])]

    async def history(self, since: str) -> AsyncIterator[dict[str, Any]]:
        """The history since an id, page by page. Raises HistoryExpired."""
        try:
            async for page in self._pages(f"{_ME}/history", {"startHistoryId": since}):
                yield page
        except ApiRefused as refusal:
            if refusal.status == 404:
                raise HistoryExpired from refusal
            raise

    async def _pages(self, path: str, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        token: str | None = None
        while True:
            more = {"maxResults": _PAGE, **({"pageToken": token} if token else {})}
            page = await self.api.json("GET", path, params={**params, **more})
            yield page
            token = next_page(page.get("nextPageToken"), token)
            if not token:
                return

    async def message(self, key: str, form: str) -> dict[str, Any] | None:
        """A message as `minimal` or `raw`; None if it is gone."""
        row = await none_if_404(self.api.json("GET", _path(key), params={"format": form}))
        return None if row is None else dict(row)

    async def modify(self, key: str, add: Sequence[str], remove: Sequence[str]) -> dict[str, Any]:
        """Change the labels of a message, and return the message."""
        body = {"addLabelIds": list(add), "removeLabelIds": list(remove)}
        return dict(await self.api.json("POST", _path(key, "/modify"), body=body))

    async def delete(self, key: str) -> bool:
        """Delete a message; if the scope does not allow that, move it to Trash and return False."""
        try:
            await none_if_404(self.api.json("DELETE", _path(key)))
        except ApiRefused as refusal:
            if refusal.status != 403:
                raise
        else:
            return True
        return await none_if_404(self.api.request("POST", _path(key, "/trash"))) is None

    async def send(self, raw: bytes) -> None:
        if len(raw) <= JSON_BYTES:
            body = {"raw": urlsafe_b64encode(raw).decode()}
            await self.api.json("POST", f"{_ME}/messages/send", body=body, once=True)
            return
        path, params = f"/upload{_ME}/messages/send", {"uploadType": "media"}
        headers = {"Content-Type": "message/rfc822"}
        await self.api.json("POST", path, params=params, content=raw, headers=headers, once=True)

    async def find(self, message_id: str, label: str) -> str | None:
        """The id of a message with this label and Message-ID."""
        params = {"q": f"rfc822msgid:{message_id.strip('<>')}", "labelIds": label, "maxResults": 1}
        page = await self.api.json("GET", f"{_ME}/messages", params=params)
        found = page.get("messages", [])
        return str(found[0]["id"]) if found else None

    async def insert(self, raw: bytes, labels: Sequence[str]) -> str:
        """Store a message without sending it."""
        params = {"internalDateSource": "dateHeader"}
        metadata = {"labelIds": list(labels)}
        if len(raw) <= JSON_BYTES:
            body = {**metadata, "raw": urlsafe_b64encode(raw).decode()}
            path = f"{_ME}/messages"
            row = await self.api.json("POST", path, params=params, body=body, once=True)
        else:
            boundary, content = _multipart_related(metadata, raw)
            path, params = f"/upload{_ME}/messages", {**params, "uploadType": "multipart"}
            headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
            row = await self.api.json(
                "POST", path, params=params, content=content, headers=headers, once=True
            )
        return str(row["id"])

    async def send_as(self) -> list[dict[str, Any]]:
        return list((await self.api.json("GET", f"{_ME}/settings/sendAs")).get("sendAs", []))


def _multipart_related(metadata: dict[str, Any], raw: bytes) -> tuple[str, bytes]:
    """The boundary and the body of an upload: metadata as JSON, and the message."""
    boundary = token_hex(16)
    first = b"Content-Type: application/json; charset=UTF-8\r\n\r\n" + json.dumps(metadata).encode()
    second = b"Content-Type: message/rfc822\r\n\r\n" + raw
    line = f"--{boundary}".encode()
    return boundary, b"\r\n".join([line, first, line, second, line + b"--", b""])


def raw_of(message: dict[str, Any]) -> bytes:
    """Decode a message that was requested as `raw`."""
    text = str(message.get("raw", ""))
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise ProviderError("unexpected response from Gmail: a message is not base64url") from error
