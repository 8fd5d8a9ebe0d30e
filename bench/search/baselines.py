"""The baselines: a LIKE scan, and FTS5 trigrams scoped by a range of rowids.

The scan reads the store's own tables, as it would without an index. The trigrams are in a separate
file with the best layout for them: the messages of an inbox are adjacent, and the order is that of
the rowid, which needs no sorting.
"""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from bench.search.corpus import Corpus
from bench.search.loading import searchable

_INBOX_BITS = 40
_BATCH = 1_000
Scope = int | None


class Baselines:
    """The store's file, read only, and one with trigrams over the same folded texts."""

    def __init__(self, folder: Path, messages: int, *, with_grams: bool = True) -> None:
        self._db = apsw.Connection(str(folder / f"baselines-{messages}.db"))
        for name, value in (("journal_mode", "wal"), ("synchronous", 0), ("mmap_size", 1 << 33)):
            self._db.pragma(name, value)
        self._store = apsw.Connection(str(folder / "postroom.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self._store.pragma("mmap_size", 1 << 33)
        self.build_s = 0.0
        self.has_grams = with_grams
        if with_grams and not self._db.table_exists("main", "grams"):
            self._build(messages)

    def _build(self, messages: int) -> None:
        self._db.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, date INTEGER, text TEXT)")
        corpus = Corpus()
        for first in range(0, messages, _BATCH):
            rows = [
                ((mail.inbox << _INBOX_BITS) | mail.number, mail.date, searchable(mail))
                for mail in corpus.mails(first, min(first + _BATCH, messages))
            ]
            with self._db:
                self._db.executemany("INSERT INTO texts VALUES (?, ?, ?)", rows)
        started = time.process_time()
        with self._db:
            self._db.execute(
                "CREATE VIRTUAL TABLE grams USING fts5(text, content='', "
                "tokenize='trigram case_sensitive 1')"
            )
            self._db.execute("INSERT INTO grams (rowid, text) SELECT id, text FROM texts")
        self.build_s = time.process_time() - started

    def like(self, q: str, scope: Scope) -> tuple[int, list[int]]:
        """The total and a page, by reading every text of the scope."""
        escaped = q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        inbox = "" if scope is None else f"m.inbox = {scope + 1} AND"
        rows = self._store.execute(
            f"""SELECT count(*) OVER (), m.number
                  FROM messages m JOIN search_texts s ON s.message = m.number
                 WHERE {inbox} m.is_hidden = 0 AND s.searchable LIKE ? ESCAPE '\\'
                 ORDER BY m.date DESC, m.number DESC LIMIT 50""",
            (f"%{escaped}%",),
        ).fetchall()
        return (rows[0][0] if rows else 0), [row[1] for row in rows]

    def fts(self, q: str, scope: Scope) -> tuple[int, list[int]]:
        """The total and a page by trigrams; a text of one or two characters is scanned."""
        if len(q) < 3:
            return self.like(q, scope)
        pattern = '"' + q.replace('"', '""') + '"'
        where = "grams MATCH ? AND rowid BETWEEN ? AND ?"
        params = (pattern, *_bounds(scope))
        total = self._db.execute(f"SELECT count(*) FROM grams WHERE {where}", params).get
        page = self._db.execute(
            f"SELECT rowid FROM grams WHERE {where} ORDER BY rowid DESC LIMIT 50", params
        ).fetchall()
        return total, [row[0] for row in page]

    def text_bytes(self) -> int:
        """Bytes of folded text."""
        found: int = self._db.execute("SELECT sum(length(CAST(text AS BLOB))) FROM texts").get
        return found

    def gram_bytes(self) -> int:
        """Bytes of the trigram index."""
        found: int = self._db.execute(
            "SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name LIKE 'grams%'"
        ).get
        return found


def _bounds(scope: Scope) -> tuple[int, int]:
    if scope is None:
        return 0, (1 << 63) - 1
    return scope << _INBOX_BITS, ((scope + 1) << _INBOX_BITS) - 1
