"""The one way in which anything is written: with who did it, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Self, TypeVar

from postroom.blocking import in_thread
from postroom.model.audit import Deed
from postroom.store.seal import Seal
from postroom.store.sql import audit
from postroom.store.transaction import Engine, Transaction

T = TypeVar("T")


def was_found(result: object) -> bool:
    """Whether there was anything to change."""
    return result is not None


def told_itself(_: object) -> bool:
    """It has written its own entries, with more in them."""
    return False


class Audited:
    """A store that writes down in the audit log what is done through it, and by whom."""

    _engine: Engine

    def __init__(self, engine: Engine, seal: Seal) -> None:
        self._engine = engine
        self._seal = seal
        self._deed: Deed | None = None

    def by(self, deed: Deed) -> Self:
        other = copy(self)
        other._deed = deed
        return other

    async def put_down(self) -> None:
        await self._write(lambda _: None)

    async def _write(
        self,
        work: Callable[[Transaction], T],
        *,
        is_act: Callable[[T], bool] = lambda _: True,
        about: str | None = None,
    ) -> T:
        """Run *work* atomically, and put it down to whoever acts, if somebody does.

        The audit log says that it was done to *about*, to what the result names, or to what the
        caller named.
        """
        deed, sealed = self._deed, list[tuple[int, bytes]]()
        if deed is not None and about is not None:
            deed = replace(deed, targets=(about,))

        def audited(tx: Transaction) -> T:
            sealed.clear()  # a first attempt may have been interrupted
            before = {} if deed is None else audit.inboxes_of(tx, deed.targets)
            result = work(tx)
            if deed is not None and is_act(result):
                audit.note_deed(tx, deed, before, result)
            newest = audit.seal(tx, self._seal)
            if newest is not None:
                sealed.append(newest)
            return result

        result = await self._engine.write(audited)
        for number, link in sealed:
            await in_thread(self._seal.mark, number, link)
        return result
