"""Live changes: flags, copy, move, delete."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import argument
from postroom.errors import NotFound, ProviderError
from postroom.model.imap import ImapCopyOf, ImapLocator
from postroom.model.key import Scope
from postroom.model.live import LiveCopy, LiveDeletion, LiveFlags, LiveMove
from postroom.operations.imap.accounts import (
    AccountId,
    Issues,
    LiveMailbox,
    OneLiveMessage,
    Steps,
    account_of,
    check_gate,
    gone,
    may_be_done,
)
from postroom.ports.imap import ImapSession, LiveImap

_SYSTEM = {
    flag.lower(): flag for flag in (r"\Seen", r"\Answered", r"\Flagged", r"\Deleted", r"\Draft")
}
_KEYWORD = re.compile(r"[A-Za-z0-9_.$+/:;<>=@!#&'|~^?,`-]{1,64}", re.ASCII)


def _flag(text: str) -> str:
    """A flag as IMAP spells it. Raises ValueError."""
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

    add_flags: Annotated[_Flags | None, argument("Flags to add.", [r"\Seen"])] = None
    remove_flags: Annotated[_Flags | None, argument("Flags to remove.", [r"\Flagged"])] = None

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
async def update_live_flags(ctx: RequestContext, request: UpdateLiveFlags) -> LiveFlags:
    live, account = account_of(ctx, request.at.account_id)
    change = _Change(request)
    with change.issues.collect():
        async with live.session(account.account_id) as session:
            await change.run(session)
    return change.result(account.account_id)


class _Change:
    """A change of flags: adds, then removes, then reads them."""

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
        """A server may accept a change and not store it (PERMANENTFLAGS)."""
        lost = [flag for flag in self.add if flag.lower() not in now]
        if self.has_added and lost:
            self.has_added = False
            self._not_applied("the server accepted, but did not store,", lost, "add_flags")
        left = [flag for flag in self.remove if flag.lower() in now]
        if self.has_removed and left:
            self.has_removed = False
            self._not_applied("the server did not remove", left, "remove_flags")

    def _not_applied(self, what: str, flags: list[str], stage: str) -> None:
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


_DELETED = (r"\Deleted",)
_Destination = Annotated[LiveMailbox, argument("The mailbox to go to.", "Archive")]


def _can(session: ImapSession, capability: str) -> bool:
    known = {word.upper() for word in session.capabilities}
    return capability in known or "IMAP4REV2" in known


class CopyLiveMessage(OneLiveMessage):
    """Copy a message of a live account to another mailbox, also of another live account."""

    destination_mailbox: _Destination
    destination_account_id: Annotated[
        AccountId | None, argument("The account to go to; default: its own.", "work")
    ] = None


@operation(Scope.WRITE, gate=check_gate)
async def copy_live_message(ctx: RequestContext, request: CopyLiveMessage) -> LiveCopy:
    at, mailbox = request.at, request.destination_mailbox
    live, source = account_of(ctx, at.account_id)
    _, target = account_of(ctx, request.destination_account_id or at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    new: list[ImapLocator] = []
    with steps.collect():
        if source == target:
            await _copy_within(live, at, mailbox, steps, new)
        else:
            copy = await _fetch_message(live, at, steps, ctx.limits.message_bytes)
            if copy is not None:
                await _append(live, target.account_id, mailbox, copy, steps, new)
    return LiveCopy(
        steps.status(has_result=_is_done(steps)),
        steps.all,
        source.account_id,
        target.account_id,
        at.mailbox,
        mailbox,
        str(at),
        steps.attempted,
        steps.succeeded,
        str(new[0]) if new else None,
    )


def _is_done(steps: Steps) -> bool:
    """Whether all steps of a copy succeeded."""
    return steps.attempted > 0 and steps.succeeded == steps.attempted


async def _copy_within(
    live: LiveImap, at: ImapLocator, mailbox: str, steps: Steps, new: list[ImapLocator]
) -> None:
    async with live.session(at.account_id) as session:
        steps.stage = "select"
        if not await session.exists(at, for_writing=False):
            raise NotFound(gone(at))
        with steps.step("copy"):
            _note_copy(new, await session.copy(at, mailbox))


async def _fetch_message(
    live: LiveImap, at: ImapLocator, steps: Steps, most_bytes: int
) -> ImapCopyOf | None:
    """The message with its flags and date."""
    copies: list[ImapCopyOf] = []

    async def work(session: ImapSession) -> None:
        copy = await session.whole(at, most_bytes)
        if copy is None:
            raise NotFound(gone(at))
        copies[:] = [copy]

    steps.attempted += 1
    with steps.collect("fetch"):
        await live.read(at.account_id, work)
        steps.succeeded += 1
    return copies[0] if copies else None


async def _append(
    live: LiveImap,
    account_id: str,
    mailbox: str,
    copy: ImapCopyOf,
    steps: Steps,
    new: list[ImapLocator],
) -> None:
    steps.stage = "connect_destination"
    async with live.session(account_id) as session:
        with steps.step("append"):
            try:
                _note_copy(new, await session.append(mailbox, copy))
            except ProviderError as error:
                plain = tuple(flag for flag in copy.flags if flag.startswith("\\"))
                if may_be_done(error) or plain == copy.flags:
                    raise
                # Not every server accepts the keywords of another.
                _note_copy(new, await session.append(mailbox, replace(copy, flags=plain)))
                steps.add(
                    "flags_not_kept", f"the server accepted only {' '.join(plain) or 'no flags'}"
                )


def _note_copy(new: list[ImapLocator], place: ImapLocator | None) -> None:
    if place is not None:
        new.append(place)


class MoveLiveMessage(OneLiveMessage):
    """Move a message of a live account to another of its mailboxes."""

    destination_mailbox: _Destination

    @model_validator(mode="after")
    def _goes_elsewhere(self) -> Self:
        here, there = self.at.mailbox, self.destination_mailbox
        if here == there or here.upper() == there.upper() == "INBOX":
            raise ValueError(f"the message is in {here} already; name another destination_mailbox")
        return self


@operation(Scope.WRITE, gate=check_gate)
async def move_live_message(ctx: RequestContext, request: MoveLiveMessage) -> LiveMove:
    at, mailbox = request.at, request.destination_mailbox
    live, account = account_of(ctx, at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    new: list[ImapLocator] = []
    with steps.collect():
        async with live.session(account.account_id) as session:
            steps.stage = "select"
            if not await session.exists(at):
                raise NotFound(gone(at))
            if _can(session, "MOVE"):
                with steps.step("move"):
                    _note_copy(new, await session.move(at, mailbox))
            else:
                await _move_by_copy(session, at, mailbox, steps, new)
    return LiveMove(
        steps.status(has_result=steps.succeeded > 0),
        steps.all,
        account.account_id,
        at.mailbox,
        mailbox,
        str(at),
        steps.attempted,
        steps.succeeded,
        str(new[0]) if new else None,
    )


async def _move_by_copy(
    session: ImapSession, at: ImapLocator, mailbox: str, steps: Steps, new: list[ImapLocator]
) -> None:
    """Copy, then remove the original if the copy succeeded."""
    with steps.step("copy"):
        _note_copy(new, await session.copy(at, mailbox))
    if steps.succeeded:
        await _remove(session, at, steps)


class DeleteLiveMessage(OneLiveMessage):
    """Delete a message of a live account for good. It does not go to the trash:
    imap_move_message would put it there."""

    confirm: Annotated[
        bool, argument("Must be true.", True), AfterValidator(lambda value: _confirmed(value=value))
    ]


def _confirmed(*, value: bool) -> bool:
    if not value:
        raise ValueError("must be true: deleting cannot be undone")
    return value


@operation(Scope.WRITE, destroys=True, gate=check_gate)
async def delete_live_message(ctx: RequestContext, request: DeleteLiveMessage) -> LiveDeletion:
    at = request.at
    live, account = account_of(ctx, at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    with steps.collect():
        async with live.session(account.account_id) as session:
            steps.stage = "select"
            if not await session.exists(at):
                raise NotFound(gone(at))
            await _remove(session, at, steps)
    return LiveDeletion(
        steps.status(has_result=steps.succeeded > 0),
        steps.all,
        account.account_id,
        at.mailbox,
        str(at),
        steps.attempted,
        steps.succeeded,
    )


async def _remove(session: ImapSession, at: ImapLocator, steps: Steps) -> None:
    r"""Flag as \Deleted and expunge this one message.

    A plain EXPUNGE would remove whatever other clients have flagged, too.
    """
    before = steps.succeeded
    with steps.step("flag_deleted"):
        await session.change_flags(at, add=_DELETED)
    if steps.succeeded == before:
        return
    if _can(session, "UIDPLUS"):
        with steps.step("expunge"):
            await session.expunge(at)
    if steps.succeeded == before + 1 and not steps.is_unsure:
        steps.add(
            "not_expunged",
            rf"the message is flagged \Deleted but still in {at.mailbox}: the server does not "
            "remove single messages, and removing all that are flagged could hit others",
            stage="expunge",
        )
