"""The Gmail API, as far as we need it. It knows nothing of us.

Shapes: https://developers.google.com/workspace/gmail/api/reference/rest
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from postroom.errors import ProviderError
from postroom.providers.web.api import Api, ApiRefused

_ME = "/gmail/v1/users/me"
_LISTED_AT_ONCE = 500
_HISTORY_AT_ONCE = 500
JSON_BYTES = 5 * 2**20
"""Above this a message goes to the upload address: the JSON one takes no more."""


class HistoryExpired(Exception):
    """The history does not go back so far; everything has to be listed again."""


class GmailClient:
    """One account at Gmail."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def profile(self) -> dict[str, Any]:
        return dict(await self.api.json("GET", f"{_ME}/profile"))

    async def labels(self) -> list[dict[str, Any]]:
        return list((await self.api.json("GET", f"{_ME}/labels")).get("labels", []))

    async def create_label(self, name: str) -> dict[str, Any]:
        body = {
            "name": name,
            "labelListVisibility": "labelShow",
            "messageListVisibility": "show",
        }
        return dict(await self.api.json("POST", f"{_ME}/labels", body=body))

    async def list_ids(
        self, *, larger_than: int | None = None, label: str | None = None
    ) -> AsyncIterator[list[str]]:
        """The ids of messages, newest first, Spam and Trash included: all, or only some."""
        token: str | None = None
        while True:
            params: dict[str, Any] = {"maxResults": _LISTED_AT_ONCE, "includeSpamTrash": "true"}
            params |= {"q": f"larger:{larger_than}"} if larger_than is not None else {}
            params |= {"labelIds": label} if label is not None else {}
            page = await self.api.json(
                "GET",
                f"{_ME}/messages",
                params={**params, **({"pageToken": token} if token else {})},
            )
            yield [str(message["id"]) for message in page.get("messages", [])]
            token = _next(page, token)
            if not token:
                return

    async def history(self, since: str) -> AsyncIterator[dict[str, Any]]:
        """What happened since, page by page. Raises HistoryExpired."""
        token: str | None = None
        while True:
            params = {"startHistoryId": since, "maxResults": _HISTORY_AT_ONCE}
            try:
                page = await self.api.json(
                    "GET",
                    f"{_ME}/history",
                    params={**params, **({"pageToken": token} if token else {})},
                )
            except ApiRefused as refusal:
                if refusal.status == 404:
                    raise HistoryExpired from refusal
                raise
            yield page
            token = _next(page, token)
            if not token:
                return

    async def message(self, key: str, form: str) -> dict[str, Any] | None:
        """A message as `minimal` or `raw`; None if it is gone."""
        try:
            path = f"{_ME}/messages/{quote(key, safe='')}"
            return dict(await self.api.json("GET", path, params={"format": form}))
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    async def modify(self, key: str, add: Sequence[str], remove: Sequence[str]) -> dict[str, Any]:
        """Change the labels of a message; how it stands then."""
        body = {"addLabelIds": list(add), "removeLabelIds": list(remove)}
        path = f"{_ME}/messages/{quote(key, safe='')}/modify"
        return dict(await self.api.json("POST", path, body=body))

    async def trash(self, key: str) -> bool:
        """Put into Trash; False if it is gone."""
        try:
            await self.api.json("POST", f"{_ME}/messages/{quote(key, safe='')}/trash")
        except ApiRefused as refusal:
            if refusal.status != 404:
                raise
            return False
        return True

    async def delete(self, key: str) -> bool:
        """Remove for good, which needs more than most sign-ins have; else into Trash, and False.

        What is gone already is removed.
        """
        try:
            await self.api.json("DELETE", f"{_ME}/messages/{quote(key, safe='')}")
        except ApiRefused as refusal:
            if refusal.status == 404:
                return True
            if refusal.status != 403:
                raise
        else:
            return True
        return not await self.trash(key)

    async def send(self, raw: bytes) -> None:
        if len(raw) <= JSON_BYTES:
            body = {"raw": urlsafe_b64encode(raw).decode()}
            await self.api.json("POST", f"{_ME}/messages/send", body=body, once=True)
            return
        await self.api.json(
            "POST",
            f"/upload{_ME}/messages/send",
            params={"uploadType": "media"},
            content=raw,
            headers={"Content-Type": "message/rfc822"},
            once=True,
        )

    async def find(self, message_id: str, label: str) -> str | None:
        """A message with this label by its Message-ID."""
        params = {"q": f"rfc822msgid:{message_id.strip('<>')}", "labelIds": label, "maxResults": 1}
        page = await self.api.json("GET", f"{_ME}/messages", params=params)
        found = page.get("messages", [])
        return str(found[0]["id"]) if found else None

    async def insert(self, raw: bytes, labels: Sequence[str]) -> str:
        """Put a message into the mailbox without sending it."""
        params = {"internalDateSource": "dateHeader"}
        about = {"labelIds": list(labels)}
        if len(raw) <= JSON_BYTES:
            body = {**about, "raw": urlsafe_b64encode(raw).decode()}
            path = f"{_ME}/messages"
            row = await self.api.json("POST", path, params=params, body=body, once=True)
            return str(row["id"])
        boundary, content = _related(about, raw)
        row = await self.api.json(
            "POST",
            f"/upload{_ME}/messages",
            params={**params, "uploadType": "multipart"},
            content=content,
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
            once=True,
        )
        return str(row["id"])

    async def send_as(self) -> list[dict[str, Any]]:
        return list((await self.api.json("GET", f"{_ME}/settings/sendAs")).get("sendAs", []))


def _related(about: dict[str, Any], raw: bytes) -> tuple[str, bytes]:
    """What is said of a message and the message, in the two parts of one upload."""
    boundary = token_hex(16)
    first = b"Content-Type: application/json; charset=UTF-8\r\n\r\n" + json.dumps(about).encode()
    second = b"Content-Type: message/rfc822\r\n\r\n" + raw
    line = f"--{boundary}".encode()
    return boundary, b"\r\n".join([line, first, line, second, line + b"--", b""])


def _next(page: dict[str, Any], token: str | None) -> str | None:
    """Where a list goes on; one that goes on where it was would never end."""
    following = page.get("nextPageToken")
    if following and following == token:
        raise ProviderError("a list of the provider does not go on")
    return following


def raw_of(message: dict[str, Any]) -> bytes:
    """The bytes of a message that was asked for as `raw`."""
    text = str(message.get("raw", ""))
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise ProviderError("a message is not in base64url") from error
