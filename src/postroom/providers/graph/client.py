"""Microsoft Graph's mail, as far as we need it. It knows nothing of us.

Shapes: https://learn.microsoft.com/en-us/graph/api/resources/message and, for changes,
https://learn.microsoft.com/en-us/graph/delta-query-messages
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from postroom.errors import ProviderError
from postroom.providers.web.api import BUSY, Api, ApiRefused, refuse_clear_text

IMMUTABLE = 'IdType="ImmutableId"'
SENT_AT_ONCE_BYTES = 3 * 2**20
"""Above this a mail goes in pieces: one request takes 4 MB, and base64 makes it larger."""

_PAGE = 100
_MOST_ROWS = 2_000
_CHUNK = 10 * 320 * 1024
"""An upload goes in pieces of a multiple of 320 KiB, each under 4 MB."""

_SELECT = "isRead,isDraft,flag,categories,receivedDateTime,parentFolderId"
_SIZE = "singleValueExtendedProperties($filter=id eq 'Integer 0x0E08')"
"""PidTagMessageSize: a message has no property of its own for it."""

_NOT_OFFERED = (400, 404, 405)
_RESYNC = ("resyncRequired", "syncStateNotFound", "syncStateInvalid")


class DeltaExpired(Exception):
    """A delta link is not good any more; the folder has to be listed again."""


class GraphClient:
    """One account at Microsoft."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def me(self) -> dict[str, Any]:
        params = {"$select": "id,mail,userPrincipalName,displayName"}
        return dict(await self.api.json("GET", "/me", params=params))

    async def well_known(self, name: str) -> str | None:
        """The id of a folder by its well-known name; None if this mailbox has none."""
        try:
            row = await self.api.json(
                "GET", f"/me/mailFolders/{name}", headers={"Prefer": IMMUTABLE}
            )
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        return str(row["id"])

    async def folders(self) -> list[dict[str, Any]]:
        """Every folder, with those inside of others after them."""
        found = await self._all("/me/mailFolders")
        for row in found:
            if row.get("childFolderCount"):
                path = f"/me/mailFolders/{quote(str(row['id']), safe='')}/childFolders"
                found += await self._all(path)
            if len(found) > _MOST_ROWS:
                break
        return found

    async def _all(
        self, path: str, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        url: str | None = path
        params = params or {"$top": _PAGE}
        while url is not None and len(rows) < _MOST_ROWS:
            page = await self.api.json("GET", url, params=params, headers={"Prefer": IMMUTABLE})
            rows += page["value"]
            url, params = self._following(page, url), None
        return rows

    def link(self, page: Mapping[str, Any], name: str) -> str | None:
        """A link of a page: our token belongs to the host that we were told to ask."""
        link = page.get(f"@odata.{name}")
        if link is None:
            return None
        if not isinstance(link, str) or not _same_place(link, self.api.base):
            raise ProviderError("a list goes on at another host; we do not follow it there")
        return link

    def _following(self, page: Mapping[str, Any], here: str) -> str | None:
        """Where a list goes on; one that goes on where it was would never end."""
        link = self.link(page, "nextLink")
        if link is not None and link == here:
            raise ProviderError("a list of the provider does not go on")
        return link

    async def create_folder(self, name: str, parent: str | None) -> dict[str, Any]:
        path = "/me/mailFolders"
        path += f"/{quote(parent, safe='')}/childFolders" if parent else ""
        return dict(await self.api.json("POST", path, body={"displayName": name}))

    async def newest(self, folder: str, since: str | None) -> list[dict[str, Any]]:
        """The newest of a folder, or all that came since a moment, newest first."""
        url = f"/me/mailFolders/{quote(folder, safe='')}/messages"
        order = {"$orderby": "receivedDateTime desc", "$top": _PAGE}
        order |= {"$select": _SELECT, "$expand": _SIZE}
        if since is None:
            page = await self.api.json("GET", url, params=order, headers={"Prefer": IMMUTABLE})
            return list(page["value"])
        return await self._all(url, {**order, "$filter": f"receivedDateTime ge {since}"})

    async def delta(self, folder: str, link: str | None) -> AsyncIterator[dict[str, Any]]:
        """What is in a folder, or what changed since a link; newest first. Raises DeltaExpired."""
        url = link or f"/me/mailFolders/{quote(folder, safe='')}/messages/delta"
        asked = {"$select": _SELECT, "$expand": _SIZE, "$orderby": "receivedDateTime desc"}
        params = None if link else asked
        headers = {"Prefer": f"{IMMUTABLE}, odata.maxpagesize={_PAGE}"}
        while True:
            try:
                page = await self.api.json("GET", url, params=params, headers=headers)
            except ApiRefused as refusal:
                if refusal.status == 410 or refusal.reason in _RESYNC:
                    raise DeltaExpired from refusal
                raise
            yield page
            following, params = self._following(page, url), None
            if following is None:
                return
            url = following

    async def mime(self, key: str) -> bytes | None:
        try:
            path = f"/me/messages/{quote(key, safe='')}/$value"
            return await self.api.ask("GET", path, headers={"Prefer": IMMUTABLE})
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    async def message(self, key: str) -> dict[str, Any]:
        path = f"/me/messages/{quote(key, safe='')}"
        return dict(
            await self.api.json(
                "GET", path, params={"$select": _SELECT}, headers={"Prefer": IMMUTABLE}
            )
        )

    async def change(self, key: str, patch: Mapping[str, Any]) -> None:
        path = f"/me/messages/{quote(key, safe='')}"
        await self.api.json("PATCH", path, body=dict(patch), headers={"Prefer": IMMUTABLE})

    async def move(self, key: str, folder: str) -> str:
        path = f"/me/messages/{quote(key, safe='')}/move"
        body = {"destinationId": folder}
        row = await self.api.json("POST", path, body=body, headers={"Prefer": IMMUTABLE})
        return str(row["id"])

    async def delete(self, key: str) -> bool:
        """Remove for good; in clouds that do not offer it, into Deleted Items, and False.

        What is gone already is removed.
        """
        path, headers = f"/me/messages/{quote(key, safe='')}", {"Prefer": IMMUTABLE}
        try:
            await self.api.json("POST", f"{path}/permanentDelete", headers=headers)
        except ApiRefused as refusal:
            if refusal.reason == "ErrorItemNotFound":
                return True
            if refusal.status not in _NOT_OFFERED:
                raise
        else:
            return True
        try:
            await self.api.json("DELETE", path, headers=headers)
        except ApiRefused as refusal:
            if refusal.status != 404:
                raise
            return True
        return False

    async def drop_drafts(self, message_id: str) -> None:
        """Remove what was begun in Drafts to be sent, and was not."""
        for key in await self.find("drafts", message_id):
            await self.drop(key)

    async def drop(self, key: str) -> None:
        """Remove for good what is of no use to anybody, in Deleted Items too."""
        if not await self.delete(key):
            await self.delete(key)

    async def send_mime(self, raw: bytes) -> None:
        await self.api.json(
            "POST",
            "/me/sendMail",
            content=b64encode(raw),
            headers={"Content-Type": "text/plain"},
            once=True,
        )

    async def create_draft(self, raw: bytes) -> str:
        row = await self.api.json(
            "POST",
            "/me/messages",
            content=b64encode(raw),
            headers={"Content-Type": "text/plain", "Prefer": IMMUTABLE},
            once=True,
        )
        return str(row["id"])

    async def send_draft(self, key: str) -> None:
        await self.api.json("POST", f"/me/messages/{quote(key, safe='')}/send", once=True)

    async def find(self, folder: str, message_id: str) -> list[str]:
        """The messages of a folder with this Message-ID."""
        quoted = message_id.replace("'", "''")
        params = {"$select": "id", "$filter": f"internetMessageId eq '{quoted}'", "$top": _PAGE}
        rows = await self._all(f"/me/mailFolders/{quote(folder, safe='')}/messages", params)
        return [str(row["id"]) for row in rows]

    async def create(self, folder: str, message: Mapping[str, Any]) -> str:
        """Put a message into a folder: a draft, unless its properties say otherwise."""
        path = f"/me/mailFolders/{quote(folder, safe='')}/messages"
        headers = {"Prefer": IMMUTABLE}
        row = await self.api.json("POST", path, body=message, headers=headers, once=True)
        return str(row["id"])

    async def attach(
        self, key: str, name: str, content_type: str, content: bytes, content_id: str = ""
    ) -> None:
        """Put a file to a message in an upload session, which takes large ones."""
        item = {
            "attachmentType": "file",
            "name": name,
            "size": len(content),
            "contentType": content_type,
            **({"isInline": True, "contentId": content_id} if content_id else {}),
        }
        path = f"/me/messages/{quote(key, safe='')}/attachments/createUploadSession"
        session = await self.api.json("POST", path, body={"AttachmentItem": item})
        url = str(session["uploadUrl"])
        refuse_clear_text(url)
        # The address is a secret of its own; our token does not belong there.
        async with httpx2.AsyncClient(timeout=120, follow_redirects=False) as http:
            for start in range(0, len(content), _CHUNK):
                piece = content[start : start + _CHUNK]
                end = start + len(piece) - 1
                headers = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
                try:
                    answer = await http.put(url, content=piece, headers=headers)
                except httpx2.HTTPError as error:
                    raise ProviderError(f"an upload broke off: {type(error).__name__}") from error
                if answer.status_code in BUSY:
                    raise self.api.told_to_wait(answer.headers)
                if answer.status_code >= 400:
                    raise ProviderError(f"an upload was answered {answer.status_code}")


def _same_place(url: str, base: str) -> bool:
    try:
        there, here = urlsplit(url), urlsplit(base)
    except ValueError:
        return False
    return (there.scheme, there.netloc) == (here.scheme, here.netloc)
