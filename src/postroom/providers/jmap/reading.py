"""What changed in a JMAP account since we looked last, newest first, and the mails themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from postroom.errors import ProviderError
from postroom.model.inbox import ARCHIVE, DRAFTS
from postroom.model.remote import Checkpoint, RemoteChanges, RemoteMessage, RemoteRef
from postroom.ports.provider import Known
from postroom.providers.fetching import fetch_each
from postroom.providers.jmap.client import JmapClient, MethodRefused
from postroom.providers.jmap.mailboxes import Mailboxes
from postroom.providers.keywords import Labels
from postroom.providers.web.sense import count_in, makes_sense

LISTED_AT_ONCE = 500
FLAGS = {"seen": "$seen", "flagged": "$flagged", "answered": "$answered", "draft": "$draft"}
_NAMES = {keyword: flag for flag, keyword in FLAGS.items()}
_PROPERTIES = ["id", "blobId", "mailboxIds", "keywords", "receivedAt", "size"]


@makes_sense
@dataclass(eq=False)
class Reading:
    """Reads an account; `state` is how its mail stood when it was read last."""

    client: JmapClient
    mailboxes: Mailboxes
    labels: Labels = field(default_factory=Labels)
    state: str | None = None
    _blobs: dict[str, str] = field(default_factory=dict)

    async def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        self.labels.learn(await known.labels())
        await self.mailboxes.learn()
        names = dict(self.mailboxes.names)
        async for part in self._renamed(since or {}, names):
            yield part
        async for part in self._changes(since, known):
            yield replace(part, checkpoint={**part.checkpoint, "names": names})

    async def _renamed(
        self, since: Checkpoint, names: Mapping[str, str]
    ) -> AsyncIterator[RemoteChanges]:
        """What is in mailboxes that are called otherwise now: of that no state tells."""
        before = since.get("names", {})
        for key in [key for key, name in names.items() if before.get(key, name) != name]:
            async for page in self._pages({"filter": {"inMailbox": key}}):
                yield RemoteChanges(since, (await self._describe(_ids(page)))[0])

    async def _changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        if since is not None and not since.get("listing"):
            try:
                async for part in self._since(since["state"]):
                    yield part
            except MethodRefused as error:
                # QUIRK: to some servers a state that they do not know is an invalid argument.
                if error.type not in ("cannotCalculateChanges", "invalidArguments"):
                    raise
                since = None
            else:
                return
        async for part in self._everything(since, known):
            yield part

    async def _everything(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncIterator[RemoteChanges]:
        """List all there is, newest first; what was begun goes on from its old state."""
        before = await known.keys("")
        state = since["state"] if since else await self._current_state()
        listing = {"state": state, "listing": True}
        listed: set[str] = set()
        news = state
        total: int | None = None
        async for page in self._pages({"calculateTotal": True}):
            ids, total = _ids(page), count_in(page.get("total"))
            if not ids:
                break
            listed.update(ids)
            messages, drafts = await self._describe(ids)
            listed -= set(drafts)
            yield RemoteChanges(listing, messages, total=total)
            async for part in self._news(news):
                news = part.checkpoint["state"]
                yield replace(part, checkpoint=listing, gone=())
        if total and before and not listed:
            raise ProviderError("the provider counts messages and lists none")
        gone = tuple(RemoteRef("", key) for key in sorted(before - listed))
        yield RemoteChanges({"state": state}, gone=gone)
        self.state = state

    async def _pages(self, query: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """A list of messages, newest first, page by page; the last one is empty."""
        anchor: dict[str, Any] = {"position": 0}
        while True:
            asked = {
                "sort": [{"property": "receivedAt", "isAscending": False}],
                "limit": self.client.limit("maxObjectsInGet", LISTED_AT_ONCE),
                **query,
                **anchor,
            }
            (page,) = await self.client.call(("Email/query", asked))
            ids = _ids(page)
            if ids and ids[-1] == anchor.get("anchor"):
                raise ProviderError("a list of the provider does not go on")
            yield page
            if not ids:
                return
            anchor = {"anchor": ids[-1], "anchorOffset": 1}

    async def _current_state(self) -> str:
        (answer,) = await self.client.call(("Email/get", {"ids": []}))
        return str(answer["state"])

    async def _news(self, state: str) -> AsyncIterator[RemoteChanges]:
        """What has happened during a long listing, which nobody wants to wait for."""
        with suppress(MethodRefused):
            async for part in self._since(state):
                yield part

    async def _since(self, state: str) -> AsyncIterator[RemoteChanges]:
        most = self.client.limit("maxObjectsInGet", LISTED_AT_ONCE)
        has_more = True
        while has_more:
            (answer,) = await self.client.call(
                ("Email/changes", {"sinceState": state, "maxChanges": most})
            )
            state = str(answer["newState"])
            has_more = bool(answer.get("hasMoreChanges"))
            ids = [*answer.get("created", []), *answer.get("updated", [])]
            messages, drafts = await self._describe(ids)
            gone = [*answer.get("destroyed", []), *drafts]
            yield RemoteChanges(
                {"state": state}, messages, tuple(RemoteRef("", str(key)) for key in gone)
            )
        self.state = state

    async def _describe(
        self, ids: Sequence[str]
    ) -> tuple[tuple[RemoteMessage, ...], tuple[str, ...]]:
        """How messages stand, and which of them are drafts, which are no messages yet."""
        if not ids:
            return (), ()
        (answer,) = await self.client.call(
            ("Email/get", {"ids": list(ids), "properties": _PROPERTIES})
        )
        found = {str(row["id"]): row for row in answer["list"]}
        if any(box not in self.mailboxes.names for r in found.values() for box in r["mailboxIds"]):
            await self.mailboxes.learn()
        messages = {key: self._message(row) for key, row in found.items()}
        drafts = tuple(key for key, message in messages.items() if message.mailboxes == (DRAFTS,))
        self._blobs |= {key: str(row["blobId"]) for key, row in found.items()}
        kept = [messages[key] for key in ids if key in messages and key not in drafts]
        return tuple(kept), drafts

    def _message(self, row: Mapping[str, Any]) -> RemoteMessage:
        keywords = [str(keyword) for keyword, is_set in row["keywords"].items() if is_set]
        names = (self.mailboxes.names.get(str(key), ARCHIVE) for key in row["mailboxIds"])
        return RemoteMessage(
            ref=RemoteRef("", str(row["id"])),
            mailboxes=tuple(dict.fromkeys(names)) or (ARCHIVE,),
            flags=tuple(_NAMES[k.lower()] for k in keywords if k.lower() in _NAMES),
            labels=self.labels.among(keywords),
            arrived_at=datetime.fromisoformat(row["receivedAt"]),
            size_bytes=int(row.get("size", 0)),
        )

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        missing = [ref.key for ref in refs if ref.key not in self._blobs]
        await self._describe(missing)

        async def one(ref: RemoteRef) -> bytes | None:
            blob = self._blobs.pop(ref.key, None)
            return await self.client.download(blob) if blob else None

        async for found in fetch_each(refs, one):
            yield found

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        return (await self._describe([ref.key for ref in refs]))[0]


def _ids(page: Mapping[str, Any]) -> list[str]:
    return [str(key) for key in page["ids"]]
