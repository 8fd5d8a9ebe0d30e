"""Live changes: flags, copy, move, delete."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import argument
from postroom.errors import ProviderError
from postroom.model.imap import ImapCopyOf, ImapLocator, LiveCopy, LiveDeletion, LiveFlags, LiveMove
from postroom.model.key import Scope
from postroom.operations.imap.accounts import (
    AccountId,
    Issues,
    LiveMailbox,
    OneLiveMessage,
    Steps,
    account_of,
    check_writes_enabled,
    may_be_done,
    missing_message_error,
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
        word = "a word of 1 to 64 letters, digits and punctuation"
        raise ValueError(rf"a flag is a system flag such as \Seen, or {word}")
    return text


_Flags = Annotated[list[Annotated[str, AfterValidator(_flag)]], Field(min_length=1, max_length=20)]


class UpdateLiveFlags(OneLiveMessage):
    r"""Add or remove flags of a message on a live account, such as \Seen or \Flagged."""

    add_flags: Annotated[_Flags | None, argument("Flags to add.", [r"\Seen"])] = None
    remove_flags: Annotated[_Flags | None, argument("Flags to remove.", [r"\Flagged"])] = None

    @model_validator(mode="after")
    def _names_a_change(self) -> Self:
        if self.add_flags is None and self.remove_flags is None:
            raise ValueError("give at least one of add_flags and remove_flags")
        both = _folded(self.add_flags or ()) & _folded(self.remove_flags or ())
        if both:
            raise ValueError(f"{', '.join(sorted(both))} is both added and removed; drop one")
        return self


def _folded(flags: Iterable[str]) -> set[str]:
    """Flags compare without case (RFC 3501 §2.3.2)."""
    return {flag.lower() for flag in flags}


@operation(Scope.WRITE, precondition=check_writes_enabled)
async def update_live_flags(ctx: RequestContext, request: UpdateLiveFlags) -> LiveFlags:
    """Add, then remove, then read the flags."""
    at = request.at
    live, account = account_of(ctx, at.account_id)
    add = tuple(dict.fromkeys(request.add_flags or ()))
    remove = tuple(dict.fromkeys(request.remove_flags or ()))
    has_added = has_removed = False
    flags: tuple[str, ...] | None = None
    steps = Steps(message_id=str(at), uid=at.uid)
    with steps.collect():
        async with live.session(account.account_id) as session:
            await _select(session, at, steps)
            if add:
                with steps.step("add_flags"):
                    await session.change_flags(at, add=add)
                    has_added = True
            if remove:
                with steps.step("remove_flags"):
                    await session.change_flags(at, remove=remove)
                    has_removed = True
            with steps.collect("fetch_flags"):
                flags = await session.flags(at)
    has_changed = has_added or has_removed
    if flags is not None:
        # A server may accept a change and not store all of it (PERMANENTFLAGS).
        lost = [flag for flag in add if flag.lower() not in _folded(flags)]
        left = [flag for flag in remove if flag.lower() in _folded(flags)]
        has_changed = (has_added and lost != [*add]) or (has_removed and left != [*remove])
        if has_added and lost:
            has_added = False
            message = f"the server accepted, but did not store, {' '.join(lost)}"
            steps.add("not_applied", message, stage="add_flags")
        if has_removed and left:
            has_removed = False
            message = f"the server did not remove {' '.join(left)}"
            steps.add("not_applied", message, stage="remove_flags")
    status = steps.status(has_result=has_changed)
    requested, applied = (add, remove), (has_added, has_removed)
    return LiveFlags(status, steps.all, account.account_id, str(at), flags, *requested, *applied)


async def _select(
    session: ImapSession, at: ImapLocator, issues: Issues, *, for_writing: bool = True
) -> None:
    """Open the mailbox of a message. Raises NotFound if the message is gone."""
    issues.stage = "select"
    if not await session.exists(at, for_writing=for_writing):
        raise missing_message_error(at)


_Destination = Annotated[LiveMailbox, argument("The target mailbox.", "Archive")]


def _can(session: ImapSession, capability: str) -> bool:
    known = {word.upper() for word in session.capabilities}
    return capability in known or "IMAP4REV2" in known


class CopyLiveMessage(OneLiveMessage):
    """Copy a message of a live account to another mailbox, also of another live account."""

    destination_mailbox: _Destination
    destination_account_id: Annotated[
        AccountId | None, argument("The target account; default: its own.", "work")
    ] = None


@operation(Scope.WRITE, precondition=check_writes_enabled)
async def copy_live_message(ctx: RequestContext, request: CopyLiveMessage) -> LiveCopy:
    at, mailbox = request.at, request.destination_mailbox
    live, source = account_of(ctx, at.account_id)
    _, target = account_of(ctx, request.destination_account_id or at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    with steps.collect():
        if source == target:
            async with live.session(at.account_id) as session:
                await _select(session, at, steps, for_writing=False)
                with steps.step("copy"):
                    steps.note_copy(await session.copy(at, mailbox))
        else:
            copy = await _fetch_message(live, at, steps, ctx.limits.message_bytes)
            if copy is not None:
                await _append(live, target.account_id, mailbox, copy, steps)
    needed = 1 if source == target else 2
    status = steps.status(has_result=steps.succeeded == needed)
    accounts, mailboxes = (source.account_id, target.account_id), (at.mailbox, mailbox)
    counts = (steps.attempted, steps.succeeded)
    return LiveCopy(
        status, steps.all, *accounts, *mailboxes, str(at), *counts, steps.new_message_id
    )


async def _fetch_message(
    live: LiveImap, at: ImapLocator, steps: Steps, max_bytes: int
) -> ImapCopyOf | None:
    """The message with its flags and date."""
    copies: list[ImapCopyOf] = []

    async def work(session: ImapSession) -> None:
        copy = await session.fetch_message(at, max_bytes)
        if copy is None:
            raise missing_message_error(at)
        copies[:] = [copy]

    steps.attempted += 1
    with steps.collect("fetch"):
        await live.read(at.account_id, work)
        steps.succeeded += 1
    return copies[0] if copies else None


async def _append(
    live: LiveImap, account_id: str, mailbox: str, copy: ImapCopyOf, steps: Steps
) -> None:
    steps.stage = "connect_destination"
    async with live.session(account_id) as session:
        with steps.step("append"):
            try:
                steps.note_copy(await session.append(mailbox, copy))
            except ProviderError as error:
                plain = tuple(flag for flag in copy.flags if flag.startswith("\\"))
                if may_be_done(error) or plain == copy.flags:
                    raise
                # Not every server accepts the keywords of another.
                steps.note_copy(await session.append(mailbox, replace(copy, flags=plain)))
                accepted = " ".join(plain) or "no flags"
                steps.add("flags_not_kept", f"the server accepted only {accepted}")


class MoveLiveMessage(OneLiveMessage):
    """Move a message of a live account to another of its mailboxes."""

    destination_mailbox: _Destination

    @model_validator(mode="after")
    def _names_another_mailbox(self) -> Self:
        here, there = self.at.mailbox, self.destination_mailbox
        if here == there or here.upper() == there.upper() == "INBOX":
            raise ValueError(f"the message is in {here} already; name another destination_mailbox")
        return self


@operation(Scope.WRITE, precondition=check_writes_enabled)
async def move_live_message(ctx: RequestContext, request: MoveLiveMessage) -> LiveMove:
    at, mailbox = request.at, request.destination_mailbox
    live, account = account_of(ctx, at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    with steps.collect():
        async with live.session(account.account_id) as session:
            await _select(session, at, steps)
            if _can(session, "MOVE"):
                with steps.step("move"):
                    steps.note_copy(await session.move(at, mailbox))
            else:
                with steps.step("copy"):
                    steps.note_copy(await session.copy(at, mailbox))
                if steps.succeeded:
                    await _remove(session, at, steps)
    status = steps.status(has_result=steps.succeeded > 0)
    moved = (account.account_id, at.mailbox, mailbox, str(at))
    counts = (steps.attempted, steps.succeeded)
    return LiveMove(status, steps.all, *moved, *counts, steps.new_message_id)


class DeleteLiveMessage(OneLiveMessage):
    """Delete a message of a live account permanently. To move it to the trash,
    use imap_move_message."""

    confirm: Annotated[bool, argument("Must be true.", True)]

    @field_validator("confirm")
    @classmethod
    def _is_true(cls, value: bool) -> bool:  # noqa: FBT001 - pydantic passes it by place
        if not value:
            raise ValueError("must be true: deleting cannot be undone")
        return value


@operation(Scope.WRITE, destroys=True, precondition=check_writes_enabled)
async def delete_live_message(ctx: RequestContext, request: DeleteLiveMessage) -> LiveDeletion:
    at = request.at
    live, account = account_of(ctx, at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    with steps.collect():
        async with live.session(account.account_id) as session:
            await _select(session, at, steps)
            await _remove(session, at, steps)
    status = steps.status(has_result=steps.succeeded > 0)
    counts = (steps.attempted, steps.succeeded)
    return LiveDeletion(status, steps.all, account.account_id, at.mailbox, str(at), *counts)


async def _remove(session: ImapSession, at: ImapLocator, steps: Steps) -> None:
    r"""Flag as \Deleted and expunge this one message.

    A plain EXPUNGE would remove whatever other clients have flagged, too.
    """
    before = steps.succeeded
    with steps.step("flag_deleted"):
        await session.change_flags(at, add=[r"\Deleted"])
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
