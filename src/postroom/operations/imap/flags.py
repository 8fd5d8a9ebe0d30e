"""Flags of live messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.errors import NotFound
from postroom.model.key import Scope
from postroom.model.live import LiveFlags
from postroom.operations.context import Context
from postroom.operations.imap.accounts import account_of, check_gate
from postroom.operations.imap.fields import OneLiveMessage, gone
from postroom.operations.issues import Issues
from postroom.operations.operation import operation
from postroom.ports.imap import ImapSession

_SYSTEM = {
    flag.lower(): flag for flag in (r"\Seen", r"\Answered", r"\Flagged", r"\Deleted", r"\Draft")
}
_KEYWORD = re.compile(r"[A-Za-z0-9_.$+/:;<>=@!#&'|~^?,`-]{1,64}", re.ASCII)


def _flag(text: str) -> str:
    """A flag in the spelling of IMAP. Raises ValueError."""
    if text.startswith("\\"):
        if text.lower() not in _SYSTEM:
            raise ValueError(f"{text[:40]} cannot be set; there are {' '.join(_SYSTEM.values())}")
        return _SYSTEM[text.lower()]
    if not _KEYWORD.fullmatch(text):
        raise ValueError(
            r"a flag is one like \Seen, or a word of 1 to 64 letters, digits and signs"
        )
    return text


_Flags = Annotated[list[Annotated[str, AfterValidator(_flag)]], Field(min_length=1, max_length=20)]


class UpdateLiveFlags(OneLiveMessage):
    r"""Add or remove flags of a message on a live account, as \Seen or \Flagged."""

    add_flags: Annotated[
        _Flags | None, Field(description="Flags to add.", examples=[[r"\Seen"]])
    ] = None
    remove_flags: Annotated[
        _Flags | None, Field(description="Flags to remove.", examples=[[r"\Flagged"]])
    ] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.add_flags is None and self.remove_flags is None:
            raise ValueError("give at least one of add_flags and remove_flags")
        both = _folded(self.add_flags or ()) & _folded(self.remove_flags or ())
        if both:
            raise ValueError(f"{', '.join(sorted(both))} is both added and removed; drop one")
        return self


def _folded(flags: Iterable[str]) -> set[str]:
    """Flags compare without case (RFC 3501 §2.3.2)."""
    return {flag.lower() for flag in flags}


@operation(Scope.WRITE, gate=check_gate)
async def update_live_flags(ctx: Context, request: UpdateLiveFlags) -> LiveFlags:
    live, account = account_of(ctx, request.at.account_id)
    change = _Change(request)
    with change.issues.collect():
        async with live.session(account.account_id) as session:
            await change.run(session)
    return change.result(account.account_id)


class _Change:
    """Flags that are added first and removed then, and what they are afterwards."""

    def __init__(self, request: UpdateLiveFlags) -> None:
        self.at = request.at
        self.add = tuple(dict.fromkeys(request.add_flags or ()))
        self.remove = tuple(dict.fromkeys(request.remove_flags or ()))
        self.has_added = self.has_removed = False
        self.flags: tuple[str, ...] | None = None
        self.issues = Issues(message_id=str(self.at), uid=self.at.uid)

    async def run(self, session: ImapSession) -> None:
        self.issues.stage = "select"
        if not await session.exists(self.at):
            raise NotFound(gone(self.at))
        if self.add:
            with self.issues.collect("add_flags"):
                await session.change_flags(self.at, add=self.add)
                self.has_added = True
        if self.remove:
            with self.issues.collect("remove_flags"):
                await session.change_flags(self.at, remove=self.remove)
                self.has_removed = True
        with self.issues.collect("fetch_flags"):
            self.flags = await session.flags(self.at)
        if self.flags is not None:
            self._compare(_folded(self.flags))

    def _compare(self, now: set[str]) -> None:
        """A server may say yes and keep the flags as they were (PERMANENTFLAGS)."""
        lost = [flag for flag in self.add if flag.lower() not in now]
        if self.has_added and lost:
            self.has_added = False
            self._say("the server took, but did not keep,", lost, "add_flags")
        left = [flag for flag in self.remove if flag.lower() in now]
        if self.has_removed and left:
            self.has_removed = False
            self._say("the server did not remove", left, "remove_flags")

    def _say(self, what: str, flags: list[str], stage: str) -> None:
        self.issues.add("not_applied", f"{what} {' '.join(flags)}", stage=stage)

    def result(self, account_id: str) -> LiveFlags:
        has_changed = self.has_added or self.has_removed
        return LiveFlags(
            self.issues.status(has_result=has_changed),
            self.issues.all,
            account_id,
            str(self.at),
            self.flags,
            self.add,
            self.remove,
            self.has_added,
            self.has_removed,
        )
