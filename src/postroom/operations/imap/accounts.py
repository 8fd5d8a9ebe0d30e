"""Live accounts: which there are, whether they work, and their mailboxes."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

from pydantic import Field

from postroom.errors import NotFound, WriteDisabled
from postroom.model.imap import ImapAccount, ImapMailbox
from postroom.model.key import Scope
from postroom.model.live import (
    LiveAccount,
    LiveAccounts,
    LiveMailboxes,
    LiveServer,
    Verification,
)
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.issues import Issues
from postroom.operations.operation import operation
from postroom.operations.request import Request
from postroom.ports.imap import ImapSession, LiveImap

MOST_ACCOUNTS = 50
MOST_MAILBOXES = 200
MOST_CAPABILITIES = 256

AccountId = Annotated[
    str,
    Field(
        pattern=forms.SHORT_HANDLE,
        description="The account.",
        examples=["default"],
    ),
]


def accounts_of(ctx: Context) -> tuple[ImapAccount, ...]:
    """The live accounts that exist for this caller; a key limited to inboxes alone sees none."""
    visible = ctx.caller.accounts
    if ctx.imap is None or (visible is None and ctx.caller.inboxes is not None):
        return ()
    return tuple(a for a in ctx.imap.accounts if visible is None or a.account_id in visible)


def account_of(ctx: Context, account_id: str) -> tuple[LiveImap, ImapAccount]:
    """The account of this name, and the door to it. Raises NotFound."""
    accounts = accounts_of(ctx)
    for account in accounts:
        if account.account_id == account_id:
            assert ctx.imap is not None
            return ctx.imap, account
    known = ", ".join(account.account_id for account in accounts[:MOST_ACCOUNTS])
    raise NotFound(
        f"no account {account_id}; "
        + (f"there are {known}" if known else "none is configured; set MAIL_IMAP_<ACCOUNT>_HOST")
    )


def check_gate(ctx: Context) -> None:
    """Refuse every change unless the owner has allowed them. Raises WriteDisabled."""
    if ctx.imap is None or not ctx.imap.is_write_enabled:
        raise WriteDisabled(
            "changes on live accounts are switched off; "
            "whoever runs this server can allow them with MAIL_IMAP_WRITE_ENABLED=true"
        )


class ListLiveAccounts(Request):
    """List the configured live IMAP accounts: names and servers, no secrets."""


@operation(Scope.READ)
async def list_live_accounts(ctx: Context, request: ListLiveAccounts) -> LiveAccounts:
    accounts = accounts_of(ctx)
    rows = tuple(LiveAccount(a.account_id, a.host, a.port, a.secure) for a in accounts)
    if len(rows) <= MOST_ACCOUNTS:
        return LiveAccounts(rows)
    issues = Issues(stage="list_accounts")
    issues.add("truncated", f"there are {len(rows)} accounts; the first {MOST_ACCOUNTS} are shown")
    return LiveAccounts(rows[:MOST_ACCOUNTS], "partial", issues.all)


class VerifyLiveAccount(Request):
    """Connect to a live account, log in and see what its server can do."""

    account_id: AccountId = "default"


@operation(Scope.READ)
async def verify_live_account(ctx: Context, request: VerifyLiveAccount) -> Verification:
    live, account = account_of(ctx, request.account_id)
    issues = Issues()
    capabilities: tuple[str, ...] = ()
    started = perf_counter()
    with issues.collect():
        async with live.fresh_session(account.account_id) as session:
            capabilities = session.capabilities
    latency_ms = round((perf_counter() - started) * 1000)
    is_in = not issues.found
    if is_in and not capabilities:
        issues.add("provider_error", "the server does not say what it can do", stage="capability")
    if len(capabilities) > MOST_CAPABILITIES:
        said = f"{len(capabilities)} capabilities; the first {MOST_CAPABILITIES} are shown"
        issues.add("truncated", f"the server has {said}", stage="capability")
    return Verification(
        issues.status(has_result=is_in),
        issues.all,
        account.account_id,
        is_in,
        latency_ms,
        LiveServer(account.host, account.port, account.secure),
        capabilities[:MOST_CAPABILITIES],
    )


class ListLiveMailboxes(Request):
    """List the mailboxes (folders) of a live account."""

    account_id: AccountId = "default"


@operation(Scope.READ)
async def list_live_mailboxes(ctx: Context, request: ListLiveMailboxes) -> LiveMailboxes:
    live, account = account_of(ctx, request.account_id)
    issues = Issues()

    async def work(session: ImapSession) -> list[ImapMailbox]:
        issues.stage = "list_mailboxes"
        return await session.mailboxes()

    found: list[ImapMailbox] = []
    with issues.collect():
        found = await live.read(account.account_id, work)
    if len(found) > MOST_MAILBOXES:
        said = f"there are {len(found)} mailboxes; the first {MOST_MAILBOXES} are shown"
        issues.add("truncated", f"{said}, those with a special use first")
    return LiveMailboxes(
        issues.status(has_result=bool(found)),
        issues.all,
        account.account_id,
        tuple(found[:MOST_MAILBOXES]),
    )
