"""What an account was signed in for, and what is refused beyond it."""

from __future__ import annotations

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.inbox import Inbox
from postroom.operations.context import Context


async def refuse_mute(ctx: Context, inbox: Inbox) -> None:
    """Refuse to send from an account that cannot, before anything is written."""
    if inbox.account_id is None:
        return
    _refuse_beyond(await _scopes(ctx, inbox.account_id), ("send",), inbox.account_id)
    stored = await ctx.store.capabilities_of(inbox.account_id)
    if stored is not None and not stored["can_send"]:
        raise Conflict(
            f"the account {inbox.account_id} cannot send: it was added without an SMTP server, or "
            "its provider takes no mail"
        )


async def refuse_undraftable(ctx: Context, inbox: Inbox) -> None:
    """Refuse to write drafts for an account that is only to be read, or that could send none."""
    if inbox.account_id is None:
        return
    scopes = await _scopes(ctx, inbox.account_id)
    _refuse_beyond(scopes, ("draft", "send"), inbox.account_id)
    if "send" in scopes:
        await refuse_mute(ctx, inbox)


async def _scopes(ctx: Context, account_id: str) -> tuple[str, ...]:
    """What an account was signed in for."""
    account = await ctx.store.account(account_id, None)
    if account is None:
        raise NotFound(no_such("account", account_id))
    return tuple(account.options.get("scopes", ("read", "draft", "send")))


def _refuse_beyond(scopes: tuple[str, ...], wanted: tuple[str, ...], account_id: str) -> None:
    if not set(scopes) & set(wanted):
        raise Conflict(
            f"the account {account_id} was added for {', '.join(scopes)} only; to {wanted[0]} "
            f"with it, remove it and add it with --scope {wanted[0]}"
        )
