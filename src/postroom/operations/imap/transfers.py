"""Copying, moving and deleting live messages, step by step, with the truth about each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.errors import NotFound, ProviderError
from postroom.model.imap import ImapCopyOf, ImapLocator
from postroom.model.key import Scope
from postroom.model.live import LiveCopy, LiveDeletion, LiveMove
from postroom.operations.context import Context
from postroom.operations.imap.accounts import AccountId, account_of, check_gate
from postroom.operations.imap.fields import LiveMailbox, OneLiveMessage, gone
from postroom.operations.issues import Steps, may_be_done
from postroom.operations.operation import operation
from postroom.ports.imap import ImapSession, LiveImap

_DELETED = (r"\Deleted",)
_Destination = Annotated[
    LiveMailbox, Field(description="The mailbox to go to.", examples=["Archive"])
]


def _can(session: ImapSession, capability: str) -> bool:
    known = {word.upper() for word in session.capabilities}
    return capability in known or "IMAP4REV2" in known


class CopyLiveMessage(OneLiveMessage):
    """Copy a message of a live account to another mailbox, also of another live account."""

    destination_mailbox: _Destination
    destination_account_id: Annotated[
        AccountId | None,
        Field(description="The account to go to; default: its own.", examples=["work"]),
    ] = None


@operation(Scope.WRITE, gate=check_gate)
async def copy_live_message(ctx: Context, request: CopyLiveMessage) -> LiveCopy:
    at, mailbox = request.at, request.destination_mailbox
    live, source = account_of(ctx, at.account_id)
    _, target = account_of(ctx, request.destination_account_id or at.account_id)
    steps = Steps(message_id=str(at), uid=at.uid)
    new: list[ImapLocator] = []
    with steps.collect():
        if source == target:
            await _copy_within(live, at, mailbox, steps, new)
        else:
            copy = await _take(live, at, steps, ctx.limits.message_bytes)
            if copy is not None:
                await _put(live, target.account_id, mailbox, copy, steps, new)
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
    """A copy that lacks its last step is none."""
    return steps.attempted > 0 and steps.succeeded == steps.attempted


async def _copy_within(
    live: LiveImap, at: ImapLocator, mailbox: str, steps: Steps, new: list[ImapLocator]
) -> None:
    async with live.session(at.account_id) as session:
        steps.stage = "select"
        if not await session.exists(at, for_writing=False):
            raise NotFound(gone(at))
        with steps.step("copy"):
            _keep(new, await session.copy(at, mailbox))


async def _take(
    live: LiveImap, at: ImapLocator, steps: Steps, most_bytes: int
) -> ImapCopyOf | None:
    """The message as it is, with its flags and its date."""
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


async def _put(
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
                _keep(new, await session.append(mailbox, copy))
            except ProviderError as error:
                plain = tuple(flag for flag in copy.flags if flag.startswith("\\"))
                if may_be_done(error) or plain == copy.flags:
                    raise
                # Not every server takes the keywords of another.
                _keep(new, await session.append(mailbox, replace(copy, flags=plain)))
                steps.add("flags_not_kept", f"the server took only {' '.join(plain) or 'no flags'}")


def _keep(new: list[ImapLocator], place: ImapLocator | None) -> None:
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
async def move_live_message(ctx: Context, request: MoveLiveMessage) -> LiveMove:
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
                    _keep(new, await session.move(at, mailbox))
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
    """Copy, then remove the original; nothing is removed that was not copied."""
    with steps.step("copy"):
        _keep(new, await session.copy(at, mailbox))
    if steps.succeeded:
        await _remove(session, at, steps)


class DeleteLiveMessage(OneLiveMessage):
    """Delete a message of a live account for good. It does not go to the trash:
    imap_move_message would put it there."""

    confirm: Annotated[
        bool,
        Field(description="Must be true.", examples=[True]),
        AfterValidator(lambda value: _confirmed(value=value)),
    ]


def _confirmed(*, value: bool) -> bool:
    if not value:
        raise ValueError("must be true: deleting cannot be undone")
    return value


@operation(Scope.WRITE, destroys=True, gate=check_gate)
async def delete_live_message(ctx: Context, request: DeleteLiveMessage) -> LiveDeletion:
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
