"""All rows of one database into another, table by table, in the order of their keys.

It can be stopped at any time: what is there already is not copied again, and nobody can open the
target before it is whole. In the end both sides are counted and hashed, and a table that differs,
because somebody wrote, is copied once more. At no time can both places be opened, unless one of
them is a backup.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from postroom.errors import Conflict
from postroom.store.sql.outbox_holding import bring_back
from postroom.store.standing import (
    HALF_MOVED,
    Kind,
    facts_of,
    has_left_to,
    keep,
    leave,
    refuse_moved,
    stay,
)
from postroom.store.store import ClosableEngine
from postroom.store.tables import (
    Table,
    clear,
    count_of,
    digest_of,
    last_of,
    page_of,
    put_rows,
    tables,
)
from postroom.store.transaction import Transaction
from postroom.store.turn import TAKEN_OVER, Turn

T = TypeVar("T")
_ROUNDS = 4
_TOKEN_BYTES = 16
_APPENDED = frozenset({"audit"})
"""No statement can take anything out of these."""

Tell = Callable[[int, float], None]
"""Told how many are done, and which share of all that is."""

BEGUN = "SELECT value FROM facts WHERE name = 'moving'"
BEGIN = "INSERT INTO facts (name, value) VALUES ('moving', :mark)"
FACTS = "SELECT name, value FROM facts WHERE name NOT IN ('moving', 'moved', 'kept', 'house')"
PUT_FACT = "INSERT INTO facts (name, value) VALUES (:name, :value)"


class Move:
    """One house on its way from one database to another, or a copy of it that is a backup."""

    def __init__(
        self, source: ClosableEngine, target: ClosableEngine, to: Kind, *, is_copy: bool = False
    ) -> None:
        self._source, self._target = source, target
        self._to, self._is_copy = to, is_copy
        self._tables = tables()
        self._wrong: list[Table] | None = None
        self._turn = Turn(target)
        self._mark = self._token = b""

    async def check(self) -> None:
        """Refuse a target that has rows, unless they are some of the source's.

        Raises:
            Conflict: it has others, or the source has moved to another place.
        """
        origin = await self._source.read(facts_of)
        await self._target.read(partial(self._begun, origin=origin))

    async def is_from_backup(self) -> bool:
        """Whether the source is the copy of a house that may have gone on since."""
        return "kept" in await self._source.read(facts_of)

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Remember in the target whose rows it gets, and be the only one who brings them.

        Raises:
            Conflict: like `check`, or another run does.
        """
        origin = await self._source.read(facts_of)
        new = origin["secret"] + secrets.token_bytes(_TOKEN_BYTES)

        def begin(tx: Transaction) -> bytes:
            self._turn.keep(tx)
            mark = self._begun(tx, origin)
            if mark is None:
                tx.run(BEGIN, mark=new)
            return mark or new

        async with self._turn:
            self._mark = await self._target.write(begin)
            self._token = self._mark.removeprefix(origin["secret"])
            yield

    def _begun(self, tx: Transaction, origin: dict[str, bytes]) -> bytes | None:
        """What an earlier run has left in the target: the secret of the source, and a token."""
        row = tx.one(BEGUN)
        mark = bytes(row[0]) if row else None
        is_ours = mark is not None and mark.startswith(origin["secret"])
        is_last_step = is_ours and has_left_to(origin, (mark or b"").removeprefix(origin["secret"]))
        if is_last_step and self._is_copy:
            raise Conflict(HALF_MOVED)
        if not is_last_step and not self._is_copy:
            refuse_moved(origin)
        if not is_ours and (mark is not None or any(count_of(tx, t) for t in self._tables)):
            raise Conflict("the target is in use; name one that is empty")
        return mark

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        """Write into the target, unless it belongs to somebody else by now."""

        def ours(tx: Transaction) -> T:
            row = tx.one(BEGUN)
            if row is None or bytes(row[0]) != self._mark:
                raise Conflict(TAKEN_OVER)
            self._turn.keep(tx)
            return work(tx)

        return await self._target.write(ours)

    async def until_whole(self, between: Callable[[], Awaitable[T]], tell: Tell) -> tuple[int, T]:
        """Copy until both sides are the same; return the number of rows, and what came between.

        *between* copies what rows need: what came in meanwhile makes another round.

        Raises:
            Conflict: they never are.
        """
        for _ in range(_ROUNDS):
            rows, result = await self.copy(tell), await between()
            if await self.is_whole():
                return rows, result
        names = ", ".join(table.name for table in self._wrong or ())
        raise Conflict(
            f"somebody writes to the source ({names} still differ); stop its servers and run this "
            "again. If nobody does, the target was written to: begin again with an empty one"
        )

    async def copy(self, tell: Tell) -> int:
        """Copy what the target lacks, and return how many rows it has then.

        The second time, tables that differ are copied anew; a log that only grows is copied on.
        """
        for table in self._wrong or ():
            if table.name not in _APPENDED:
                await self._write(partial(clear, table=table))
        counts = [await self._source.read(partial(count_of, table=t)) for t in self._tables]
        total, done = sum(counts), 0
        for table in self._tables:
            done += await self._copy(
                table, lambda count: tell(count, count / max(total, count)), done
            )
        return done

    async def _copy(self, table: Table, tell: Callable[[int], None], before: int) -> int:
        """Copy what the target does not have yet, and return how many rows it has then."""
        last = await self._target.read(partial(last_of, table=table))
        count = await self._target.read(partial(count_of, table=table))
        while rows := await self._source.read(partial(page_of, table=table, after=last)):
            await self._write(partial(put_rows, table=table, rows=rows))
            last = table.key_of(rows[-1])
            count += len(rows)
            tell(before + count)
        return count

    async def is_whole(self) -> bool:
        """Whether each table is the same on both sides."""
        self._wrong = [
            table
            for table in self._tables
            if await digest_of(self._source, table) != await digest_of(self._target, table)
        ]
        return not self._wrong

    async def finish(self) -> int:
        """Let the target take over: numbers go on where they were, with the same facts.

        The source can be opened no more; a backup stays one, and a copy becomes one. Returns how
        many mails of a backup may have left since: they are held.

        Raises:
            Conflict: the source has moved elsewhere, somebody wrote to it since it was compared, or
            another run is at the target.
        """
        is_backup = await self.is_from_backup()
        if not self._is_copy and not is_backup:
            # Before the target can be opened: at no time can both be.
            await self._source.write(self._leave)
            await self._compare_again()
        counters = await self._source.read(self._last_numbers)
        facts = await self._source.read(lambda tx: tx.all(FACTS))

        def take_over(tx: Transaction) -> int:
            self._target.set_counters(tx, counters)
            tx.run("DELETE FROM facts")
            tx.many(PUT_FACT, [{"name": name, "value": value} for name, value in facts])
            if self._is_copy:
                return keep(tx)
            return bring_back(tx) if is_backup else 0

        return await self._write(take_over)

    def _leave(self, tx: Transaction) -> None:
        leave(tx, facts_of(tx), self._token, self._to)

    async def _compare_again(self) -> None:
        """Nobody writes to what has left; but until then, somebody may have. Raises Conflict."""
        if not await self.is_whole():
            await self._source.write(lambda tx: stay(tx, facts_of(tx), self._token))
            raise Conflict("somebody wrote to the source; stop its servers and run this again")

    def _last_numbers(self, tx: Transaction) -> dict[str, int]:
        counted = [table.name for table in self._tables if table.key == ("number",)]
        highest = {name: tx.one(f"SELECT max(number) FROM {name}") for name in counted}
        present = {name: int(row[0]) for name, row in highest.items() if row and row[0]}
        return present | self._source.counters(tx, counted)
