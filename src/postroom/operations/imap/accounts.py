"""Live accounts: list and verify them; arguments and issues of live operations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.errors import (
    MailError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    TooLarge,
    WriteDisabled,
)
from postroom.mail.mime.decoding import REPLACEMENT
from postroom.model.imap import (
    MAX_MAILBOX_CHARS,
    ImapAccount,
    ImapLocator,
    ImapMailbox,
    Issue,
    LiveAccount,
    LiveAccounts,
    LiveMailboxes,
    LiveServer,
    Outcome,
    Verification,
)
from postroom.model.key import Scope
from postroom.model.view import Everything
from postroom.ports.imap import ImapSession, LiveImap

_REMOTE_ERRORS = (ProviderError, NotFound, TooLarge)
"""Errors of the other side, which become issues; invalid input and conflicts are raised."""


@dataclass(slots=True)
class Issues:
    """Collects issues; `stage`, `message_id` and `uid` describe the current step."""

    stage: str = "connect"
    message_id: str | None = None
    uid: int | None = None
    found: list[Issue] = field(default_factory=list)

    @contextmanager
    def collect(self, stage: str | None = None) -> Iterator[None]:
        """Turn errors of the other side into issues."""
        self.stage = stage or self.stage
        try:
            yield
        except _REMOTE_ERRORS as error:
            self.add(error.code, str(error), retryable=error.retryable)

    def add(
        self,
        code: str,
        message: str,
        *,
        stage: str | None = None,
        retryable: bool = False,
        uid: int | None = None,
    ) -> None:
        uid = self.uid if uid is None else uid
        stage = stage or self.stage
        self.found.append(Issue(code, stage, message, retryable, uid, self.message_id))

    @property
    def all(self) -> tuple[Issue, ...]:
        return tuple(self.found)

    def status(self, *, has_result: bool) -> Outcome:
        """The status of the whole call."""
        if not self.found:
            return "ok"
        return "partial" if has_result else "failed"


@dataclass(slots=True)
class Steps(Issues):
    """Issues of a change with several steps; `is_unsure` if the outcome of one is unknown."""

    attempted: int = 0
    succeeded: int = 0
    is_unsure: bool = False
    new_message_id: str | None = None

    def note_copy(self, copy: ImapLocator | None) -> None:
        """Note the id of the copy, if the server reports its place."""
        self.new_message_id = str(copy) if copy else None

    @contextmanager
    def step(self, stage: str) -> Iterator[None]:
        """Run one step that changes something, and count it.

        Without a response its outcome is unknown; that is reported, and not retried.
        """
        self.stage = stage
        self.attempted += 1
        try:
            yield
        except _REMOTE_ERRORS as error:
            if not may_be_done(error):
                self.add(error.code, str(error), retryable=error.retryable)
                return
            self.is_unsure = True
            self.add(
                error.code, f"{error}. The change may have been made; check before you repeat it"
            )
        else:
            self.succeeded += 1


def may_be_done(error: MailError) -> bool:
    """Whether the server may have made a change although it did not respond."""
    if isinstance(error, ProviderTimeout):
        return True
    return isinstance(error, ProviderError) and "server_said" not in error.details


MAX_ACCOUNTS = 50
MAX_MAILBOXES = 200
MAX_CAPABILITIES = 256

AccountId = Annotated[str, argument("The account.", "default", pattern=request.SHORT_HANDLE)]


def accounts_of(ctx: RequestContext) -> tuple[ImapAccount, ...]:
    """The live accounts that exist for this caller."""
    live = () if ctx.imap is None else ctx.imap.accounts
    return tuple(account for account in live if ctx.caller.accounts.sees(account.account_id))


def account_of(ctx: RequestContext, account_id: str) -> tuple[LiveImap, ImapAccount]:
    """The live account of this name, and the port to it. Raises NotFound."""
    accounts = accounts_of(ctx)
    for account in accounts:
        if account.account_id == account_id:
            assert ctx.imap is not None
            return ctx.imap, account
    known = ", ".join(account.account_id for account in accounts[:MAX_ACCOUNTS])
    if known:
        raise NotFound(f"no account {account_id}; there are {known}")
    is_limited = not isinstance(ctx.caller.accounts, Everything)
    why = (
        "your key may use none; ask the owner for a key that names one"
        if is_limited
        else "none is configured; set MAIL_IMAP_<ACCOUNT>_HOST"
    )
    raise NotFound(f"no account {account_id}; {why}")


def check_writes_enabled(ctx: RequestContext) -> None:
    """Refuse changes unless they are allowed by the settings. Raises WriteDisabled."""
    if ctx.imap is None or not ctx.imap.is_write_enabled:
        raise WriteDisabled(
            "changes on live accounts are disabled; "
            "the administrator can allow them with MAIL_IMAP_WRITE_ENABLED=true"
        )


class ListLiveAccounts(Request):
    """List the configured live IMAP accounts: names and servers, no secrets."""


@operation(Scope.READ)
async def list_live_accounts(ctx: RequestContext, request: ListLiveAccounts) -> LiveAccounts:
    accounts = accounts_of(ctx)
    rows = tuple(LiveAccount(a.account_id, a.host, a.port, a.secure) for a in accounts)
    if len(rows) <= MAX_ACCOUNTS:
        return LiveAccounts(rows)
    issues = Issues(stage="list_accounts")
    issues.add("truncated", f"there are {len(rows)} accounts; the first {MAX_ACCOUNTS} are shown")
    return LiveAccounts(rows[:MAX_ACCOUNTS], "partial", issues.all)


class VerifyLiveAccount(Request):
    """Connect to a live account, log in and show what its server supports."""

    account_id: AccountId = "default"


@operation(Scope.READ)
async def verify_live_account(ctx: RequestContext, request: VerifyLiveAccount) -> Verification:
    live, account = account_of(ctx, request.account_id)
    issues = Issues()
    capabilities: tuple[str, ...] = ()
    started = perf_counter()
    with issues.collect():
        async with live.fresh_session(account.account_id) as session:
            capabilities = session.capabilities
    latency_ms = round((perf_counter() - started) * 1000)
    is_logged_in = not issues.found
    if is_logged_in and not capabilities:
        message = "the server does not report its capabilities"
        issues.add("provider_error", message, stage="capability")
    if len(capabilities) > MAX_CAPABILITIES:
        text = f"{len(capabilities)} capabilities; the first {MAX_CAPABILITIES} are shown"
        issues.add("truncated", f"the server has {text}", stage="capability")
    return Verification(
        issues.status(has_result=is_logged_in),
        issues.all,
        account.account_id,
        is_logged_in,
        latency_ms,
        LiveServer(account.host, account.port, account.secure),
        capabilities[:MAX_CAPABILITIES],
    )


class ListLiveMailboxes(Request):
    """List the mailboxes (folders) of a live account."""

    account_id: AccountId = "default"


@operation(Scope.READ)
async def list_live_mailboxes(ctx: RequestContext, request: ListLiveMailboxes) -> LiveMailboxes:
    live, account = account_of(ctx, request.account_id)
    issues = Issues()

    async def work(session: ImapSession) -> list[ImapMailbox]:
        issues.stage = "list_mailboxes"
        return await session.mailboxes()

    found: list[ImapMailbox] = []
    with issues.collect():
        found = await live.read(account.account_id, work)
    usable = [mailbox for mailbox in found if _is_usable(mailbox.name)]
    if len(usable) < len(found):
        text = f"{len(found) - len(usable)} mailboxes cannot be named by a tool and are left out"
        issues.add("left_out", f"{text}: their names are too long or have invalid characters")
    found = usable
    if len(found) > MAX_MAILBOXES:
        text = f"there are {len(found)} mailboxes; the first {MAX_MAILBOXES} are shown"
        issues.add("truncated", f"{text}, those with a special use first")
    return LiveMailboxes(
        issues.status(has_result=bool(found)),
        issues.all,
        account.account_id,
        tuple(found[:MAX_MAILBOXES]),
    )


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def without_controls(text: str) -> str:
    """A text without ASCII control characters. Raises ValueError."""
    if _CONTROL.search(text):
        raise ValueError("must not contain control characters")
    if _SURROGATE.search(text):
        raise ValueError("must not contain an unpaired surrogate")
    return text


def _is_usable(name: str) -> bool:
    is_clean = not _CONTROL.search(name) and REPLACEMENT not in name
    return is_clean and len(name) <= MAX_MAILBOX_CHARS


LiveMailbox = Annotated[
    str, Field(min_length=1, max_length=MAX_MAILBOX_CHARS), AfterValidator(without_controls)
]


def _locator(text: str) -> str:
    at = ImapLocator.parse(without_controls(text))
    if not _ACCOUNT.fullmatch(at.account_id):
        raise ValueError("names an invalid account: 1 to 64 letters, digits, _ and -")
    if len(at.mailbox) > MAX_MAILBOX_CHARS:
        raise ValueError(f"names a mailbox of more than {MAX_MAILBOX_CHARS} characters")
    return text


LiveMessageId = Annotated[
    str,
    argument("The message, as a search returned it.", "imap:default:INBOX:1700000000:42"),
    AfterValidator(_locator),
]


def missing_message_error(at: ImapLocator) -> NotFound:
    """The error for a message that does not exist."""
    return NotFound(f"message {at.uid} is no longer in {at.mailbox}; search again")


class OneLiveMessage(Request):
    """A request about one message on a server."""

    account_id: Annotated[AccountId | None, argument("Its account; optional.", "default")] = None
    message_id: LiveMessageId

    @model_validator(mode="after")
    def _names_one_account(self) -> Self:
        if self.account_id is not None and self.account_id != self.at.account_id:
            raise ValueError(
                f"account_id is {self.account_id}, but message_id names {self.at.account_id}; "
                "leave account_id out"
            )
        return self

    @property
    def at(self) -> ImapLocator:
        return ImapLocator.parse(self.message_id)
