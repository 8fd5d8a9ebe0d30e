"""A client of mail in Microsoft Graph, limited to what we need. It knows nothing of our model.

Reference: https://learn.microsoft.com/en-us/graph/api/resources/message and, for changes,
https://learn.microsoft.com/en-us/graph/delta-query-messages
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from postroom.errors import ProviderError
from postroom.model.account import RateLimits
from postroom.providers.web.api import BUSY, UPLOAD_HOSTS, Api, ApiRefused, check_url, none_if_404
from postroom.providers.web.history_reader import HistoryExpired, next_page

RATES = RateLimits(requests_per_second=12, burst=60)
"""Microsoft allows 10,000 requests in ten minutes per mailbox."""

IMMUTABLE = 'IdType="ImmutableId"'
_PREFER = {"Prefer": IMMUTABLE}
_MIME = {"Content-Type": "text/plain"}
SINGLE_REQUEST_BYTES = 3 * 2**20
"""A larger mail is sent in parts: a request may have 4 MB, including base64."""

_PAGE = 100
_MAX_ROWS = 2_000
_CHUNK = 10 * 320 * 1024
"""Parts of an upload must be a multiple of 320 KiB and under 4 MB."""

_SELECT = "isRead,isDraft,flag,categories,receivedDateTime,parentFolderId"
_SIZE = "singleValueExtendedProperties($filter=id eq 'Integer 0x0E08')"
"""PidTagMessageSize; a message has no regular property for it."""

_LISTING = {"$select": _SELECT, "$expand": _SIZE, "$orderby": "receivedDateTime desc"}
_NOT_OFFERED = (400, 404, 405)
_RESYNC = ("resyncRequired", "syncStateNotFound", "syncStateInvalid")


def _folder(key: str, below: str = "") -> str:
    return f"/me/mailFolders/{quote(key, safe='')}{below}"


def _message(key: str, below: str = "") -> str:
    return f"/me/messages/{quote(key, safe='')}{below}"


class GraphClient:
    """One account at Microsoft."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def me(self) -> dict[str, Any]:
        params = {"$select": "id,mail,userPrincipalName,displayName"}
        return dict(await self.api.json("GET", "/me", params=params))

    async def well_known(self, name: str) -> str | None:
        """The id of a folder by its well-known name; None if this mailbox does not have it."""
        row = await none_if_404(self.api.json("GET", f"/me/mailFolders/{name}", headers=_PREFER))
        return None if row is None else str(row["id"])

    async def folders(self) -> list[dict[str, Any]]:
        """All folders; child folders follow their parents."""
        found = await self._all("/me/mailFolders")
        for row in found:
            if row.get("childFolderCount"):
                found += await self._all(_folder(str(row["id"]), "/childFolders"))
            if len(found) > _MAX_ROWS:
                break
        return found

    async def _all(
        self, path: str, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for page in self._pages(path, params or {"$top": _PAGE}, _PREFER):
            rows += page["value"]
            if len(rows) >= _MAX_ROWS:
                break
        return rows

    async def _pages(
        self, path: str, params: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[dict[str, Any]]:
        url: str | None = path
        while url is not None:
            page = await self.api.json("GET", url, params=params, headers=headers)
            yield page
            url, params = next_page(self.link(page, "nextLink"), url), None

    def link(self, page: Mapping[str, Any], name: str) -> str | None:
        """A link of a page. Raises ProviderError for another host, which would get the token."""
        link = page.get(f"@odata.{name}")
        if link is None:
            return None
        check_url(str(link), self.api.base, {})
        return str(link)

    async def create_folder(self, name: str, parent: str | None) -> dict[str, Any]:
        path = _folder(parent, "/childFolders") if parent else "/me/mailFolders"
        return dict(await self.api.json("POST", path, body={"displayName": name}))

    async def newest(self, folder: str, since: str | None) -> list[dict[str, Any]]:
        """The newest messages of a folder, or all that arrived since a time."""
        url, params = _folder(folder, "/messages"), {**_LISTING, "$top": _PAGE}
        if since is None:
            page = await self.api.json("GET", url, params=params, headers=_PREFER)
            return list(page["value"])
        return await self._all(url, {**params, "$filter": f"receivedDateTime ge {since}"})

    async def delta(self, folder: str, link: str | None) -> AsyncIterator[dict[str, Any]]:
        """The messages of a folder, newest first, or the changes since a link, page by page.

        Raises HistoryExpired.
        """
        url, params = link or _folder(folder, "/messages/delta"), None if link else _LISTING
        headers = {"Prefer": f"{IMMUTABLE}, odata.maxpagesize={_PAGE}"}
        try:
            async for page in self._pages(url, params, headers):
                yield page
        except ApiRefused as refusal:
            if refusal.status == 410 or refusal.reason in _RESYNC:
                raise HistoryExpired from refusal
            raise

    async def mime(self, key: str) -> bytes | None:
        return await none_if_404(self.api.request("GET", _message(key, "/$value"), headers=_PREFER))

    async def message(self, key: str) -> dict[str, Any]:
        params = {"$select": _SELECT}
        return dict(await self.api.json("GET", _message(key), params=params, headers=_PREFER))

    async def change(self, key: str, patch: Mapping[str, Any]) -> None:
        await self.api.json("PATCH", _message(key), body=dict(patch), headers=_PREFER)

    async def move(self, key: str, folder: str) -> str:
        body = {"destinationId": folder}
        row = await self.api.json("POST", _message(key, "/move"), body=body, headers=_PREFER)
        return str(row["id"])

    async def delete(self, key: str) -> bool:
        """Delete a message; where the cloud does not offer that, move it to Deleted Items.

        Returns whether the message is gone.
        """
        try:
            await self.api.json("POST", _message(key, "/permanentDelete"), headers=_PREFER)
        except ApiRefused as refusal:
            if refusal.reason == "ErrorItemNotFound":
                return True
            if refusal.status not in _NOT_OFFERED:
                raise
        else:
            return True
        return await none_if_404(self.api.request("DELETE", _message(key), headers=_PREFER)) is None

    async def delete_drafts(self, message_id: str) -> None:
        """Delete the drafts of a mail that was not sent."""
        for key in await self.find("drafts", message_id):
            await self.delete_permanently(key)

    async def delete_permanently(self, key: str) -> None:
        """Delete a message, also from Deleted Items."""
        if not await self.delete(key):
            await self.delete(key)

    async def send_mime(self, raw: bytes) -> None:
        content = b64encode(raw)
        await self.api.json("POST", "/me/sendMail", content=content, headers=_MIME, once=True)

    async def create_draft(self, raw: bytes) -> str:
        headers, content = {**_MIME, **_PREFER}, b64encode(raw)
        path = "/me/messages"
        row = await self.api.json("POST", path, content=content, headers=headers, once=True)
        return str(row["id"])

    async def send_draft(self, key: str) -> None:
        await self.api.json("POST", _message(key, "/send"), once=True)

    async def find(self, folder: str, message_id: str) -> list[str]:
        """The ids of messages in a folder with this Message-ID."""
        quoted = message_id.replace("'", "''")
        params = {"$select": "id", "$filter": f"internetMessageId eq '{quoted}'", "$top": _PAGE}
        return [str(row["id"]) for row in await self._all(_folder(folder, "/messages"), params)]

    async def create(self, folder: str, message: Mapping[str, Any]) -> str:
        """Create a message in a folder; it is a draft unless its properties say otherwise."""
        path = _folder(folder, "/messages")
        row = await self.api.json("POST", path, body=message, headers=_PREFER, once=True)
        return str(row["id"])

    async def attach(self, key: str, properties: Mapping[str, Any], content: bytes) -> None:
        """Attach a file of any size in an upload session."""
        item = {"attachmentType": "file", "size": len(content), **properties}
        path = _message(key, "/attachments/createUploadSession")
        session = await self.api.json("POST", path, body={"AttachmentItem": item})
        url = check_url(str(session["uploadUrl"]), self.api.base, UPLOAD_HOSTS)
        # The URL itself is secret; the token must not be sent there.
        async with httpx2.AsyncClient(timeout=120, follow_redirects=False) as http:
            for start in range(0, len(content), _CHUNK):
                part = content[start : start + _CHUNK]
                end = start + len(part) - 1
                headers = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
                try:
                    response = await http.put(url, content=part, headers=headers)
                except httpx2.HTTPError as error:
                    raise ProviderError(f"the upload failed: {type(error).__name__}") from error
                if response.status_code in BUSY:
                    raise self.api.rate_limited(response.headers)
                if response.status_code >= 400:
                    raise ProviderError(
                        f"the upload failed with HTTP status {response.status_code}"
                    )
