"""A mailbox as seen by another client: Python's imaplib, independent of the code under test."""

from __future__ import annotations

import imaplib
import re
import secrets
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tests.servers.dovecot import PASSWORD

_UID = re.compile(rb"UID (\d+)")


class ImapServer(Protocol):
    """A running IMAP server."""

    imap: int
    imaps: int
    certificate: Path


@dataclass
class ImaplibMailbox:
    """One mailbox of one user; `wire_name` is its name in modified UTF-7."""

    imap: imaplib.IMAP4_SSL
    name: str
    wire_name: str

    @property
    def uidvalidity(self) -> int:
        (found,) = self._ask("STATUS", self._quoted, "(UIDVALIDITY)")
        return int(re.search(rb"UIDVALIDITY (\d+)", found)[1])  # type: ignore[index]

    def append(self, raw: bytes, flags: Sequence[str] = (), at: datetime | None = None) -> int:
        """Put a message into the mailbox and return its UID."""
        raw = re.sub(rb"\r?\n", b"\r\n", raw)
        when = imaplib.Time2Internaldate(at) if at is not None else None
        kind, data = self.imap.append(self._quoted, f"({' '.join(flags)})", when, raw)  # type: ignore[arg-type]
        assert "OK" == kind, data
        return int(re.search(rb"APPENDUID \d+ (\d+)", data[0])[1])  # type: ignore[index]

    def uids(self) -> list[int]:
        return self.find("ALL")

    def find(self, *keys: str) -> list[int]:
        self._select()
        return [int(uid) for uid in self._ask("UID SEARCH", *keys)[0].split()]

    def flags(self, uid: int) -> set[str]:
        self._select()
        (row,) = self._ask("UID FETCH", str(uid), "(FLAGS)")
        return set(re.search(r"FLAGS \(([^)]*)\)", row.decode())[1].split()) - {r"\Recent"}  # type: ignore[index]

    def arrival(self, uid: int) -> str:
        self._select()
        (row,) = self._ask("UID FETCH", str(uid), "(INTERNALDATE)")
        return re.search(r'INTERNALDATE "([^"]*)"', row.decode())[1]  # type: ignore[index]

    def raw(self, uid: int) -> bytes:
        self._select()
        rows = self.imap.uid("FETCH", str(uid), "(BODY.PEEK[])")[1]
        return rows[0][1]  # type: ignore[index,return-value]

    def flag(self, uid: int, flag: str) -> None:
        self._select()
        self._ask("UID STORE", str(uid), "+FLAGS.SILENT", f"({flag})")

    def remove(self, uid: int) -> None:
        """Delete and expunge a message."""
        self.flag(uid, r"\Deleted")
        self._ask("UID EXPUNGE", str(uid))

    def close(self) -> None:
        """Close the mailbox without removing anything."""
        if self.imap.state == "SELECTED":
            self.imap.unselect()

    def recreate(self) -> None:
        """Delete the mailbox and create it again: its UIDVALIDITY changes."""
        self.close()
        self._ask("DELETE", self._quoted)
        self._ask("CREATE", self._quoted)

    def _select(self) -> None:
        kind, data = self.imap.select(self._quoted)
        assert "OK" == kind, data

    def _ask(self, command: str, *arguments: str) -> list[bytes]:
        name, _, sub = command.partition(" ")
        if sub:
            kind, data = self.imap.uid(sub, *arguments)
        else:
            kind, data = self.imap._simple_command(name, *arguments)  # type: ignore[attr-defined]
            if name == "STATUS":
                kind, data = self.imap._untagged_response(kind, data, name)  # type: ignore[attr-defined]
        assert "OK" == kind, data
        return [row for row in data if isinstance(row, bytes)]

    @property
    def _quoted(self) -> str:
        escaped = self.wire_name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


@contextmanager
def imaplib_mailbox(
    server: ImapServer, user: str, name: str | None = None, wire_name: str | None = None
) -> Iterator[ImaplibMailbox]:
    """Log in with imaplib and open a mailbox, a new one if none is named."""
    context = ssl.create_default_context(cafile=str(server.certificate))
    with imaplib.IMAP4_SSL("127.0.0.1", server.imaps, ssl_context=context, timeout=300) as imap:
        imap.login(user, PASSWORD)
        box = ImaplibMailbox(imap, name or "", wire_name or name or "")
        if name is None or wire_name is not None:
            box.name = name or f"t-{secrets.token_hex(6)}"
            box.wire_name = wire_name or box.name
            box._ask("CREATE", box._quoted)
        yield box
