"""A small scripted IMAP server, for behaviour that no real server shows.

It has a few messages in memory and answers correctly by default. `replies` replaces the reply to a
command: bytes in which `{tag}` stands for the tag, or a function of the command that returns such
bytes or several pieces of them; `spoil` may alter a reply. All received lines are in `lines`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CAPABILITIES = "IMAP4rev1 LITERAL+ UIDPLUS MOVE ESEARCH SEARCHRES"
HEADER = (
    b"From: Ana <ana@example.com>\r\nSubject: Hello %d\r\nDate: Sun, 1 Mar 2026 09:00:00 +0000\r\n"
)
_LITERAL = re.compile(rb"\{(\d+)(\+?)\}\r\n$")
_SECTION = re.compile(rb"BODY\.PEEK\[([^\]]*)\](?:<(\d+)\.(\d+)>)?")


@dataclass(frozen=True, slots=True)
class ImapCommand:
    """A command: its tag, its name in upper case, and its arguments, literals included."""

    tag: bytes
    name: str
    rest: bytes


Reply = bytes | Callable[[ImapCommand], bytes | Iterable[bytes]]


@dataclass
class Mail:
    """A message of the server."""

    raw: bytes
    flags: set[bytes] = field(default_factory=set)


def mails(count: int, *, text: bytes = b"Good morning.\r\n") -> dict[int, Mail]:
    """Some messages by UID."""
    return {uid: Mail(HEADER % uid + b"\r\n" + text) for uid in range(1, count + 1)}


@dataclass
class ScriptedImap:
    """The server; `mailboxes` maps wire names to messages."""

    capabilities: str = CAPABILITIES
    greeting: bytes = b"* OK ready\r\n"
    mailboxes: dict[bytes, dict[int, Mail]] = field(default_factory=lambda: {b"INBOX": mails(5)})
    uidvalidity: int = 7
    replies: Mapping[str, Reply] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    is_dead_in_idle: bool = False
    spoil: Callable[[ImapCommand, bytes], bytes] | None = None
    port: int = 0
    lines: list[bytes] = field(default_factory=list)
    connections: int = 0

    def commands(self, *but: str) -> list[bytes]:
        """The received commands, without tags, and without those of every login."""
        leave_out = {"LOGIN", "CAPABILITY", "ID", *but}
        parts = [line.split(b" ", 1)[1].strip() for line in self.lines if b" " in line]
        return [p for p in parts if p.split(b" ")[0].decode("latin-1").upper() not in leave_out]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = _Connection(self, reader, writer)
        try:
            await connection.run()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


@dataclass
class _Connection:
    """One connection."""

    server: ScriptedImap
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    selected: bytes = b""
    saved: list[int] = field(default_factory=list)
    idling: bytes = b""

    async def run(self) -> None:
        self.writer.write(self.server.greeting)
        while (command := await self._read()) is not None:
            reply = self.server.replies.get(command.name)
            data = reply(command) if callable(reply) else reply
            if data is None:
                data = self._answer(command)
            if self.server.spoil is not None and isinstance(data, bytes):
                data = self.server.spoil(command, data)
            if command.name == "IDLE":
                self.idling = command.tag
            for piece in [data] if isinstance(data, bytes) else data:
                self.writer.write(piece.replace(b"{tag}", command.tag))
                await self.writer.drain()
            if command.name == "STARTTLS" and self.server.tls is not None:
                await self.writer.start_tls(self.server.tls)
            if command.name == "LOGOUT":
                return

    async def _read(self) -> ImapCommand | None:
        """The next command with its literals; None at the end."""
        whole = await self.reader.readline()
        if not whole:
            return None
        while (literal := _LITERAL.search(whole)) is not None:
            if not literal[2]:
                self.writer.write(b"+ go on\r\n")
            whole += await self.reader.readexactly(int(literal[1]))
            whole += await self.reader.readline()
        self.server.lines.append(whole)
        tag, _, rest = whole.rstrip(b"\r\n").partition(b" ")
        name, _, rest = rest.partition(b" ")
        if name.upper() == b"UID":
            second, _, rest = rest.partition(b" ")
            name += b" " + second
        return ImapCommand(tag, name.decode("latin-1").upper(), rest)

    def _answer(self, command: ImapCommand) -> bytes:
        method = getattr(self, "_do_" + command.name.lower().replace(" ", "_"), None)
        if method is None:
            return b"{tag} BAD unknown command\r\n"
        try:
            answer: bytes = method(command.rest)
        except (LookupError, ValueError):
            return b"{tag} NO there is no such thing\r\n"
        is_whole = b"{tag}" in answer or not command.name
        return answer if is_whole else answer + b"{tag} OK done\r\n"

    def _do_capability(self, rest: bytes) -> bytes:
        return b"* CAPABILITY " + self.server.capabilities.encode() + b"\r\n"

    def _do_login(self, rest: bytes) -> bytes:
        return b""

    _do_noop = _do_id = _do_unselect = _do_login

    def _do_(self, rest: bytes) -> bytes:
        """DONE has no tag of its own: it ends what IDLE began."""
        return b"" if self.server.is_dead_in_idle else self.idling + b" OK {tag}\r\n"

    def _do_starttls(self, rest: bytes) -> bytes:
        return b"{tag} OK begin\r\n" if self.server.tls is not None else b"{tag} BAD no\r\n"

    def _do_logout(self, rest: bytes) -> bytes:
        return b"* BYE bye\r\n"

    def _do_list(self, rest: bytes) -> bytes:
        return b"".join(b'* LIST () "/" "%s"\r\n' % name for name in self.server.mailboxes)

    def _do_status(self, rest: bytes) -> bytes:
        name = _name(rest.rpartition(b" (")[0])
        return b'* STATUS "%s" (MESSAGES %d)\r\n' % (name, len(self.server.mailboxes[name]))

    def _do_examine(self, rest: bytes, code: bytes = b"READ-ONLY") -> bytes:
        name = _name(rest)
        if name not in self.server.mailboxes:
            self.selected = b""
            return b"{tag} NO [NONEXISTENT] no such mailbox\r\n"
        self.selected = name
        return b"* %d EXISTS\r\n* OK [UIDVALIDITY %d] ok\r\n{tag} OK [%s] open\r\n" % (
            len(self._box()),
            self.server.uidvalidity,
            code,
        )

    def _do_select(self, rest: bytes) -> bytes:
        return self._do_examine(rest, b"READ-WRITE")

    def _box(self) -> dict[int, Mail]:
        return self.server.mailboxes[self.selected]

    def _do_uid_search(self, rest: bytes) -> bytes:
        if not self.selected:
            return b"{tag} BAD no mailbox\r\n"
        returning = re.match(rb"RETURN \(([^)]*)\) ", rest)
        uids = self._matching(rest[returning.end() :] if returning else rest)
        if returning is None:
            return b"* SEARCH " + b" ".join(b"%d" % uid for uid in uids) + b"\r\n"
        if b"SAVE" in returning[1]:
            self.saved = uids
        count = b" COUNT %d" % len(uids) if b"COUNT" in returning[1] else b""
        found = b" ALL " + b",".join(b"%d" % uid for uid in uids) if b"ALL" in returning[1] else b""
        return b"* ESEARCH (TAG {tag}) UID" + count + (found if uids else b"") + b"\r\n{tag} OK\r\n"

    def _matching(self, keys: bytes) -> list[int]:
        if keys == b"$":
            return self.saved
        below = re.search(rb"UID 1:(\d+)", keys)
        words = re.search(rb'(?:TEXT|SUBJECT|FROM) "?([^"]*)"?$', keys)
        return [
            uid
            for uid, mail in sorted(self._box().items())
            if (below is None or uid <= int(below[1]))
            and (words is None or words[1].lower() in mail.raw.lower())
        ]

    def _do_uid_fetch(self, rest: bytes) -> bytes:
        if not self.selected:
            return b"{tag} BAD no mailbox\r\n"
        which, _, items = rest.partition(b" ")
        return b"".join(self._row(uid, items) for uid in _uids(which) if uid in self._box())

    def _do_fetch(self, rest: bytes) -> bytes:
        return b"".join(self._row(uid, rest) for uid in self._box())

    def _row(self, uid: int, items: bytes) -> bytes:
        mail = self._box()[uid]
        found = [b"UID %d" % uid]
        if b"FLAGS" in items:
            found.append(b"FLAGS (%s)" % b" ".join(sorted(mail.flags)))
        if b"INTERNALDATE" in items:
            found.append(b'INTERNALDATE " 1-Mar-2026 10:00:00 +0100"')
        if b"RFC822.SIZE" in items:
            found.append(b"RFC822.SIZE %d" % len(mail.raw))
        if b"BODYSTRUCTURE" in items:
            size = len(mail.raw.partition(b"\r\n\r\n")[2])
            part = b'"TEXT" "PLAIN" NIL NIL NIL "7BIT" %d 1 NIL NIL NIL' % size
            found.append(b"BODYSTRUCTURE (%s)" % part)
        for section, start, size in _SECTION.findall(items):
            found.append(_section(mail.raw, section, start, size))
        place = sorted(self._box()).index(uid) + 1
        return b"* %d FETCH (%s)\r\n" % (place, b" ".join(found))

    def _do_uid_store(self, rest: bytes) -> bytes:
        which, change, flags = rest.split(b" ", 2)
        words = set(flags.strip(b"()").split())
        for uid in _uids(which):
            if mail := self._box().get(uid):
                mail.flags = mail.flags | words if change.startswith(b"+") else mail.flags - words
        return b""

    def _do_uid_copy(self, rest: bytes) -> bytes:
        which, _, name = rest.partition(b" ")
        there = self.server.mailboxes.get(_name(name))
        if there is None:
            return b"{tag} NO [TRYCREATE] no such mailbox\r\n"
        (uid,) = _uids(which)
        new = max(there, default=0) + 1
        there[new] = Mail(self._box()[uid].raw, set(self._box()[uid].flags))
        return b"{tag} OK [COPYUID %d %d %d] copied\r\n" % (self.server.uidvalidity, uid, new)

    def _do_uid_move(self, rest: bytes) -> bytes:
        answer = self._do_uid_copy(rest)
        if b"COPYUID" in answer:
            (uid,) = _uids(rest.partition(b" ")[0])
            del self._box()[uid]
        return answer

    def _do_uid_expunge(self, rest: bytes) -> bytes:
        for uid in _uids(rest):
            if rb"\Deleted" in self._box()[uid].flags:
                del self._box()[uid]
        return b""

    def _do_append(self, rest: bytes) -> bytes:
        name, _, rest = rest.partition(b" ")
        there = self.server.mailboxes.get(_name(name))
        if there is None:
            return b"{tag} NO [TRYCREATE] no such mailbox\r\n"
        flags = set(rest[: rest.index(b")")].strip(b"(").split())
        raw = re.split(rb"\{\d+\+?\}\r\n", rest, maxsplit=1)[1]
        new = max(there, default=0) + 1
        there[new] = Mail(raw, flags)
        return b"{tag} OK [APPENDUID %d %d] done\r\n" % (self.server.uidvalidity, new)


def _name(data: bytes) -> bytes:
    if literal := re.match(rb"\{\d+\+?\}\r\n", data):
        return data[literal.end() :]
    return data.strip().strip(b'"').replace(b"\\\\", b"\\").replace(b'\\"', b'"')


def _uids(which: bytes) -> list[int]:
    found: list[int] = []
    for part in which.split(b","):
        low, _, high = part.partition(b":")
        found += range(int(low), int(high or low) + 1)
    return found


def _section(raw: bytes, section: bytes, start: bytes, size: bytes) -> bytes:
    header, _, body = raw.partition(b"\r\n\r\n")
    whole = {b"": raw, b"TEXT": body, b"1": body}.get(section, header + b"\r\n\r\n")
    origin = b"<%s>" % start if start else b""
    part = whole[int(start) : int(start) + int(size)] if start else whole
    return b"BODY[%s]%s {%d}\r\n%s" % (section, origin, len(part), part)


@asynccontextmanager
async def scripted(**options: object) -> AsyncIterator[ScriptedImap]:
    """Run a scripted server on loopback; with `tls` and no STARTTLS it uses implicit TLS."""
    server = ScriptedImap(**options)  # type: ignore[arg-type]
    implicit = server.tls if "STARTTLS" not in server.capabilities else None
    listening = await asyncio.start_server(
        server.serve, "127.0.0.1", 0, ssl=implicit, limit=64 * 1024 * 1024
    )
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()
