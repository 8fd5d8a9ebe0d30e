"""A store with random, difficult mail, and a plain scan of it without an index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from postroom.model.inbox import HIDDEN_MAILBOXES, Inbox
from postroom.model.mail.message import AddressLine
from postroom.model.mail.storage import FIELD_BORDER, Change, NewAttachment, NewMessage
from postroom.model.view import EVERYTHING, only
from postroom.store.audited_store import AuditHmac
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import IndexSearcher, SearchQuery, SearchResult, compact
from postroom.store.search.query.scan import ScanLimits
from postroom.store.sql.statements import caseless
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import Store
from postroom.store.transaction import Engine, Transaction

START = 1_700_000_000
NOTHING_IS_SMALL = ScanLimits(words=0, phrases=0, lists=0)
SMALL_POLICY = MergePolicy(buffer_docs=20, fan_out=3, max_docs=300, idle_buffer=20)

_PIECES = (
    "the", "of", "a", "in", "invoice", "invoices", "voice", "report", "re", "x1", "42", "2026",
    "aa", "aaa", "ab", "aba", "straße", "café", "naïve", "привет", "мир", "дом", "你好", "世界",
    "你", "日本語", "ไทย", "한국어", "http://a.b/c?d=e", "a.b@c.de", "...", "--", "-", "->", "()",
    "%", "_", "\\", '"', "*", "é", "e\u0301", "ﬁ", "🙂", "\x01", "\x02", "0x1f", "c3po",
    "z" * 121, "é" * 61, "-" * 130, "abcdefghijklmnopqrstuvwxyz" * 5, "7" * 120, "一二三四五六七八",
    "приветмирдом" * 20, "".join(chr(97 + n * n % 26) + chr(97 + n % 25) for n in range(200)),
    "-----original message-----", "https://www.example.com/a/b?c=d&e=f", "https://www.example.org",
)  # fmt: skip
_BETWEEN = ("", " ", " ", "\n", "\r\n ")
_LABELS = ("Work", "work in progress", "Ünïcode", "x")
_FLAGS = ("seen", "flagged", "answered", "draft")
_MAILBOXES = ("Inbox", "Archive", "Trash", "Junk", "Sent")


class SearchScenario:
    """Mail that is added, changed and removed in an order given by a seed."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.store = Store(engine, AuditHmac(b"key"))
        self.random = random.Random(seed)
        self.searcher = IndexSearcher(NOTHING_IS_SMALL)
        self.inboxes: list[Inbox] = []
        self.ids: list[str] = []

    @classmethod
    async def open(cls, folder: Path, seed: int, inboxes: int = 3) -> SearchScenario:
        return await cls.on(SqliteEngine.open(folder / "world.db"), seed, inboxes)

    @classmethod
    async def on(cls, engine: Engine, seed: int, inboxes: int = 3) -> SearchScenario:
        """A scenario on any engine; one seed gives the same mail on each."""
        scenario = cls(engine, seed)
        for number in range(inboxes):
            now = datetime.fromtimestamp(START, UTC)
            inbox = Inbox(f"inb_{number}", f"{number}@postroom.localhost", "", None, now)
            scenario.inboxes.append(
                await scenario.store.add_inbox(inbox, client_id=None, payload=b"")
            )
        return scenario

    async def arrive(self, count: int) -> None:
        """Add messages, not in the order of their dates."""
        new = [self._message() for _ in range(count)]
        await self.store.add_messages(new)
        self.ids += [message.id for message in new]

    async def arrive_with(self, text: str) -> str:
        """Add a message with this text; return its id."""
        message = replace(self._message(), searchable=text)
        await self.store.add_messages([message])
        return message.id

    async def reparse_messages(self, message_id: str, text: str) -> None:
        """Replace the text of a message."""
        await self.store.reparse_messages(
            [replace(self._message(), id=message_id, searchable=text)]
        )

    async def change(self, count: int) -> None:
        """Label, flag, move, parse again or remove messages."""
        for message_id in self.random.sample(self.ids, min(count, len(self.ids))):
            what = self.random.random()
            if what < 0.2:
                await self.store.remove_message(message_id, EVERYTHING)
                self.ids.remove(message_id)
            elif what < 0.3:
                await self.store.reparse_messages([replace(self._message(), id=message_id)])
            elif what < 0.6:
                change = Change(move_to=self.random.choice(_MAILBOXES))
                await self.store.change_messages([message_id], change, EVERYTHING)
            elif what < 0.8:
                change = Change(flags=self._flags())
                await self.store.change_messages([message_id], change, EVERYTHING)
            else:
                labels = tuple(self.random.sample(_LABELS, self.random.randrange(3)))
                await self.store.change_messages([message_id], Change(labels=labels), EVERYTHING)

    async def merge(self, policy: MergePolicy = SMALL_POLICY) -> None:
        """Compact until there is nothing left to do."""
        while await compact(self.engine, policy):
            pass

    async def find(self, query: SearchQuery) -> SearchResult:
        return await self.engine.read(lambda tx: self.searcher.search(tx, query))

    async def scan(self) -> PlainScan:
        return await self.engine.read(PlainScan)

    def text(self, max_words: int = 30) -> str:
        """Some words, with and without spaces and line breaks between them."""
        words = self.random.choices(_PIECES, k=self.random.randrange(1, max_words))
        return "".join(word + self.random.choice(_BETWEEN) for word in words).strip()

    def _flags(self) -> tuple[str, ...]:
        return tuple(self.random.sample(_FLAGS, self.random.choice((0, 0, 1, 2))))

    def _message(self) -> NewMessage:
        from postroom.mail.text.fold import fold

        number = len(self.ids) + self.random.randrange(10**12)
        sender = AddressLine("from", self.text(3), f"{self.random.randrange(9)}.b@c{number % 5}.de")
        to = AddressLine("to", "", f"{number % 7}@postroom.localhost")
        names = [self.text(3) for _ in range(self.random.choice((0, 0, 0, 1, 2)))]
        fields = (self.text(6), self.text(60), sender.address, sender.name, *names)
        files = tuple(
            NewAttachment(f"att_{number}_{at}", name, "text/plain", 1, at > 0, f"{number}{at}")
            for at, name in enumerate(names)
        )
        date = START + self.random.choice((self.random.randrange(50), len(self.ids) * 3))
        return NewMessage(
            id=f"msg_{number}",
            inbox_id=self.random.choice(self.inboxes).id,
            direction="inbound",
            subject=fields[0],
            addresses=(sender, to),
            date=datetime.fromtimestamp(date, UTC),
            received_at=datetime.fromtimestamp(START, UTC),
            internet_message_id=f"{number}@x",
            in_reply_to=None,
            references=(),
            base_subject=f"{number % 40}",
            text=fields[1],
            new_text=None,
            snippet="",
            searchable=FIELD_BORDER.join(fold(field) for field in fields),
            size_bytes=1,
            raw=f"{number}",
            fingerprint=b"",
            parser_version=1,
            attachments=files,
            mailboxes=(self.random.choice(_MAILBOXES),),
            labels=tuple(self.random.sample(_LABELS, self.random.choice((0, 0, 1, 2)))),
            flags=self._flags(),
        )

    def query(self, scan: PlainScan) -> SearchQuery:
        """A random query; most of its texts occur in the mail."""
        chance = self.random.random
        query = SearchQuery(
            inboxes=self.random.choice(_VIEWS),
            thread=self.random.choice(scan.rows)[3] if chance() < 0.1 and scan.rows else None,
            q=self.part(scan.text(self.random, 0)) if chance() < 0.7 else None,
            words=self._parts(scan, 0) if chance() < 0.2 else (),
            sender=self.part(scan.text(self.random, 1)) if chance() < 0.1 else None,
            sender_words=self._parts(scan, 1) if chance() < 0.1 else (),
            recipient=self.part(scan.text(self.random, 2)) if chance() < 0.1 else None,
            subject=self.part(scan.text(self.random, 3)) if chance() < 0.2 else None,
            flags=self._flags() if chance() < 0.2 else (),
            without_flags=self._flags() if chance() < 0.2 else (),
            oldest_first=chance() < 0.4,
            labels=(caseless(self.random.choice(_LABELS)),) if chance() < 0.1 else (),
            mailbox=self.random.choice((None, None, "*", "inbox", "trash", "none")),
            has_attachment=self.random.choice((None, None, None, True, False)),
            since=START + self.random.randrange(100) if chance() < 0.1 else None,
            before=START + self.random.randrange(1000) if chance() < 0.1 else None,
            limit=self.random.choice((1, 5, 50)),
            offset=self.random.choice((0, 0, 0, 1, 7, 600)),
        )
        if chance() < 0.3 and scan.rows:
            row = self.random.choice(scan.rows)
            return _with_place(query, (row[1], row[0]))
        return query

    def _parts(self, scan: PlainScan, stream: int) -> tuple[str, ...]:
        """Several parts of one text, or rarely of two."""
        text, other = scan.text(self.random, stream), scan.text(self.random, stream)
        chosen = (text, other if self.random.random() < 0.1 else text, text)
        return tuple(self.part(own)[:6].strip(" ") for own in chosen)

    def part(self, text: str) -> str:
        """A part of a text, sometimes altered so that it does not match."""
        for _ in range(100):
            start = self.random.randrange(max(1, len(text)))
            size = self.random.choice((1, 2, 3, 5, 8, 12, 20, 40, 90))
            found = text[start : start + size].strip(" ")
            if self.random.random() < 0.05:
                found = (found + self.random.choice(("q", " of", "-", "你"))).strip(" ")
            if found and FIELD_BORDER not in found:
                return found
        return "e"


def _with_place(query: SearchQuery, place: tuple[int, int]) -> SearchQuery:
    return replace(query, after=place, offset=0)


class PlainScan:
    """All messages as stored, and the results that follow from them."""

    def __init__(self, tx: Transaction) -> None:
        from postroom.store.sql.statements import flag_names, from_text

        rows = tx.all(
            """SELECT m.number, m.date, m.inbox, m.thread, m.has_attachment, m.mailboxes,
                      m.labels, m.flags, b.searchable, b.senders, b.recipients
                 FROM messages m
                 JOIN search_texts b ON b.inbox = m.inbox AND b.message = m.number"""
        )
        self.rows = [
            (*row[:5], {*map(caseless, from_text(row[5]))}, {*map(caseless, from_text(row[6]))},
             {*flag_names(row[7])}, *row[8:], row[8].partition(FIELD_BORDER)[0])
            for row in rows
        ]  # fmt: skip

    def text(self, chooser: random.Random, stream: int) -> str:
        return str(chooser.choice(self.rows)[8 + stream]) if self.rows else ""

    def counts(self, inbox: int, mailbox: str) -> tuple[int, int]:
        """How many messages are in a mailbox, and how many of them are unread."""
        flags = [row[7] for row in self.rows if row[2] == inbox and mailbox in row[5]]
        return len(flags), sum("seen" not in own for own in flags)

    def answer(self, query: SearchQuery) -> SearchResult:
        matches = ((row[1], row[0]) for row in self.rows if _fits(row, query))
        found = sorted(matches, reverse=not query.oldest_first)
        offset, after = query.offset, query.after
        if after is not None and query.oldest_first:
            offset = sum(match <= after for match in found)
        elif after is not None:
            offset = sum(match >= after for match in found)
        page = found[offset : offset + query.limit]
        return SearchResult(tuple(number for _, number in page), len(found), offset)


_VIEWS = (EVERYTHING, EVERYTHING, only(1), only(2, 3), only(1, 2, 3), only())
_HIDDEN = {caseless(name) for name in HIDDEN_MAILBOXES}


def _fits(row: Sequence[object], query: SearchQuery) -> bool:
    _, date, inbox, thread, has_file, mailboxes, labels, flags, *texts = row
    asked = (query.q, query.sender, query.recipient, query.subject)
    return (
        query.inboxes.sees(inbox)
        and (query.thread is None or thread == query.thread)
        and all(text is None or text in own for text, own in zip(asked, texts, strict=True))
        and all(word in texts[0] for word in query.words)
        and all(word in texts[1] for word in query.sender_words)
        and set(query.flags) <= flags
        and not set(query.without_flags) & flags
        and set(query.labels) <= labels
        and (query.has_attachment is None or bool(has_file) == query.has_attachment)
        and (query.since is None or date >= query.since)
        and (query.before is None or date < query.before)
        and (query.mailbox is not None or not mailboxes <= _HIDDEN)
        and (query.mailbox in (None, "*") or query.mailbox in mailboxes)
    )
