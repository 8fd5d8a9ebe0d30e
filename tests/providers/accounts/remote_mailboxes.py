"""Mailboxes at providers, changed and read as by another client of their owner."""

from __future__ import annotations

import imaplib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.gmail import TOKEN, Gmail
from tests.servers.graph import TOKEN as GRAPH_TOKEN
from tests.servers.graph import Graph
from tests.servers.graph import Mail as GraphMail
from tests.servers.jmap import JmapServer
from tests.servers.jmap_proxy import JmapProxy
from tests.servers.relay import Relay, relaying

ADDRESS = "alice@example.com"
GREETING = b"250-relay.example\r\n250-SIZE 50000000\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN"
PLAIN = "IMAP4rev1 LITERAL+ IDLE UIDPLUS NAMESPACE"
"""A server without CONDSTORE, QRESYNC, MOVE and SPECIAL-USE."""

PREFIXED = "imap-prefixed"
"""A server where all mailboxes are inside of INBOX."""

PROXIED = "fastmail-proxied"
"""The JMAP server, with a proxy in front of it that can answer itself."""


@dataclass(frozen=True)
class RemoteState:
    """The flags, labels and mailbox of a message at its provider, in our terms."""

    flags: frozenset[str]
    labels: frozenset[str]
    mailbox: str


class RemoteMailbox(ABC):
    """One mailbox at a provider. Messages are named by their subjects."""

    settings: dict[str, str]
    arguments: dict[str, Any]
    can_expire = True

    def rename(self, address: str) -> None:
        """Change the address of the mailbox."""
        self.arguments["address"] = address

    @abstractmethod
    def deliver(self, raw: bytes) -> None: ...
    @abstractmethod
    def flag(self, subject: str) -> None: ...
    @abstractmethod
    def remove(self, subject: str) -> None: ...
    @abstractmethod
    def archive(self, subject: str) -> None: ...
    @abstractmethod
    def find(self, subject: str) -> RemoteState | None: ...
    @abstractmethod
    def copies(self, subject: str) -> list[str]:
        """The mailboxes of all messages with this subject, except drafts."""

    @abstractmethod
    def expire(self) -> None:
        """Invalidate the sync state of clients, as providers do after a while."""

    @abstractmethod
    def sent(self) -> list[bytes]:
        """The mails that the provider has sent."""


_IMAP_FLAGS = {rb"\Seen": "seen", rb"\Flagged": "flagged", rb"\Answered": "answered"}


class ImapRemote(RemoteMailbox):
    """Any IMAP server; one with JMAP may be behind a proxy.

    `home` is where Dovecot keeps its files.
    """

    proxy: JmapProxy
    home: Path

    def __init__(self, port: int, outgoing: Relay, names: dict[str, str]) -> None:
        self.imap = imaplib.IMAP4("127.0.0.1", port)
        self.imap.login("alice", PASSWORD)
        self.relay = outgoing
        self.names = names
        self.port = port

    def deliver(self, raw: bytes) -> None:
        assert self.imap.append("INBOX", "", None, raw)[0] == "OK"  # type: ignore[arg-type]

    def _places(self, subject: str) -> Iterator[tuple[str, str]]:
        _, rows = self.imap.list()
        for row in rows:
            assert isinstance(row, bytes)
            if b"\\Noselect" in row or b"\\NonExistent" in row:
                continue
            name = re.sub(rb'^\([^)]*\) ("[^"]*"|NIL) ', b"", row).decode().strip('"')
            self.imap.select(f'"{name}"')
            _, found = self.imap.search(None, "SUBJECT", f'"{subject}"')
            for number in found[0].split():
                yield name, number.decode()

    def _place(self, subject: str) -> tuple[str, str] | None:
        return next(self._places(subject), None)

    def copies(self, subject: str) -> list[str]:
        return [self.names.get(name, name) for name, _ in self._places(subject)]

    def _there(self, subject: str) -> str:
        place = self._place(subject)
        assert place is not None
        return place[1]

    def flag(self, subject: str) -> None:
        self.imap.store(self._there(subject), "+FLAGS", r"(\Flagged)")

    def remove(self, subject: str) -> None:
        self.imap.store(self._there(subject), "+FLAGS", r"(\Deleted)")
        self.imap.expunge()

    def archive(self, subject: str) -> None:
        number = self._there(subject)
        self.imap.copy(number, "Archive")
        self.imap.store(number, "+FLAGS", r"(\Deleted)")
        self.imap.expunge()

    def find(self, subject: str) -> RemoteState | None:
        place = self._place(subject)
        if place is None:
            return None
        _, rows = self.imap.fetch(place[1], "(FLAGS)")
        words = imaplib.ParseFlags(rows[0])  # type: ignore[arg-type]
        return RemoteState(
            frozenset(_IMAP_FLAGS[word] for word in words if word in _IMAP_FLAGS),
            frozenset(w.decode().lower() for w in words if not w.startswith((b"\\", b"$"))),
            self.names.get(place[0], place[0]),
        )

    def sent(self) -> list[bytes]:
        return [mail.data for mail in self.relay.mails]

    def expire(self) -> None:
        """Another UIDVALIDITY: the mailbox is made anew with the same mail."""
        self.imap.create("Aside")
        self.imap.select("INBOX")
        self.imap.copy("1:*", "Aside")
        self.imap.store("1:*", "+FLAGS", r"(\Deleted)")
        self.imap.expunge()
        self.imap.rename("INBOX", "Before")
        self.imap.delete("Before")
        self.imap.select("Aside")
        self.imap.copy("1:*", "INBOX")
        self.imap.close()
        self.imap.delete("Aside")


class GmailRemote(RemoteMailbox):
    """The Gmail emulator."""

    _NAMES = {"INBOX": "Inbox", "SENT": "Sent", "SPAM": "Junk", "TRASH": "Trash"}

    def __init__(self, gmail: Gmail) -> None:
        self.gmail = gmail
        self.settings = {"POSTROOM_GMAIL_URL": gmail.url, "POSTROOM_GMAIL_CLIENT_ID": "cid"}
        self.arguments = {"provider": "gmail", "address": ADDRESS, "access_token": TOKEN}

    def rename(self, address: str) -> None:
        super().rename(address)
        self.gmail.address = address

    def deliver(self, raw: bytes) -> None:
        self.gmail.deliver(raw)

    def _rows(self, subject: str) -> Iterator[dict[str, Any]]:
        page = self.gmail.call("GET", "/messages?maxResults=500&includeSpamTrash=true")
        for found in page.get("messages", []):
            row: dict[str, Any] = self.gmail.call("GET", f"/messages/{found['id']}?format=full")
            headers = {h["name"].lower(): h["value"] for h in row["payload"]["headers"]}
            if headers.get("subject") == subject:
                yield row

    def _row(self, subject: str) -> dict[str, Any] | None:
        return next(self._rows(subject), None)

    def copies(self, subject: str) -> list[str]:
        rows = [row["labelIds"] for row in self._rows(subject)]
        return [self._NAMES[key] for row in rows for key in row if key in self._NAMES]

    def _key(self, subject: str) -> str:
        row = self._row(subject)
        assert row is not None
        return str(row["id"])

    def flag(self, subject: str) -> None:
        self.gmail.call(
            "POST", f"/messages/{self._key(subject)}/modify", {"addLabelIds": ["STARRED"]}
        )

    def remove(self, subject: str) -> None:
        self.gmail.call("DELETE", f"/messages/{self._key(subject)}")

    def archive(self, subject: str) -> None:
        key = self._key(subject)
        self.gmail.call("POST", f"/messages/{key}/modify", {"removeLabelIds": ["INBOX"]})

    def find(self, subject: str) -> RemoteState | None:
        row = self._row(subject)
        if row is None:
            return None
        names = {r["id"]: r["name"] for r in self.gmail.call("GET", "/labels")["labels"]}
        keys = row["labelIds"]
        flags = {"flagged"} if "STARRED" in keys else set()
        flags |= {"seen"} if "UNREAD" not in keys else set()
        boxes = [self._NAMES[key] for key in keys if key in self._NAMES]
        own = frozenset(names[key].lower() for key in keys if key.startswith("Label_"))
        return RemoteState(frozenset(flags), own, boxes[0] if boxes else "Archive")

    def sent(self) -> list[bytes]:
        return self.gmail.sent

    def expire(self) -> None:
        self.gmail.forgets_history = True


class GraphRemote(RemoteMailbox):
    """Our implementation of Graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.settings = {"POSTROOM_OUTLOOK_URL": graph.url, "POSTROOM_OUTLOOK_CLIENT_ID": "cid"}
        self.arguments = {"provider": "outlook", "address": ADDRESS, "access_token": GRAPH_TOKEN}

    def rename(self, address: str) -> None:
        super().rename(address)
        self.graph.address = address

    def deliver(self, raw: bytes) -> None:
        self.graph.deliver(raw)

    def _mail(self, subject: str) -> GraphMail | None:
        wanted = f"Subject: {subject}".encode()
        return next((m for m in self.graph.mails.values() if wanted in m.raw), None)

    def copies(self, subject: str) -> list[str]:
        wanted = f"Subject: {subject}".encode()
        found = [m for m in self.graph.mails.values() if wanted in m.raw and not m.is_draft]
        return [self.graph.folders[mail.folder].removesuffix(" Items") for mail in found]

    def _there(self, subject: str) -> GraphMail:
        mail = self._mail(subject)
        assert mail is not None
        return mail

    def flag(self, subject: str) -> None:
        mail = self._there(subject)
        mail.flag = "flagged"
        self.graph.touch(mail)

    def remove(self, subject: str) -> None:
        self.graph.remove(self._there(subject))

    def archive(self, subject: str) -> None:
        self.graph.move(self._there(subject), "f-archive")

    def find(self, subject: str) -> RemoteState | None:
        mail = self._mail(subject)
        if mail is None:
            return None
        flags = {"flagged"} if mail.flag == "flagged" else set()
        flags |= {"seen"} if mail.is_read else set()
        labels = frozenset(label.lower() for label in mail.categories)
        return RemoteState(frozenset(flags), labels, self.graph.folders[mail.folder])

    def sent(self) -> list[bytes]:
        return self.graph.sent

    def expire(self) -> None:
        self.graph.forgets_deltas = True


@asynccontextmanager
async def open_remote(kind: str) -> AsyncIterator[RemoteMailbox]:
    """Open an empty mailbox at a provider of this kind."""
    if kind == "gmail":
        with Gmail() as gmail:
            yield GmailRemote(gmail)
        return
    if kind == "outlook":
        with Graph() as graph:
            yield GraphRemote(graph)
        return
    async with relaying({"EHLO": GREETING}) as outgoing:
        if kind in ("fastmail", PROXIED):
            with JmapServer(outgoing.port) as cyrus, JmapProxy(cyrus.url) as proxy:
                remote = ImapRemote(cyrus.imap, outgoing, {"INBOX": "Inbox"})
                remote.proxy = proxy
                url = proxy.url if kind == PROXIED else cyrus.url
                remote.settings = {"POSTROOM_FASTMAIL_URL": url}
                remote.arguments = {
                    "provider": "fastmail",
                    "address": ADDRESS,
                    "user": "alice",
                    "password": PASSWORD,
                }
                yield remote
            return
        prefixed = {"prefix": "INBOX.", "separator": "."} if kind == PREFIXED else {}
        with Dovecot(capability=PLAIN if kind == "imap-plain" else "", **prefixed) as dovecot:
            names = {"INBOX": "Inbox", "Gesendet": "Sent", "Papierkorb": "Trash"}
            remote = ImapRemote(dovecot.imap, outgoing, names)
            remote.home = dovecot.home
            remote.settings = {}
            remote.arguments = {
                "provider": "imap",
                "address": ADDRESS,
                "user": "alice",
                "password": PASSWORD,
                "host": "127.0.0.1",
                "port": dovecot.imaps,
                "ca_file": str(dovecot.certificate),
                "smtp_host": "127.0.0.1",
                "smtp_port": outgoing.port,
                "smtp_security": "none",
                "insecure": True,
            }
            yield remote
