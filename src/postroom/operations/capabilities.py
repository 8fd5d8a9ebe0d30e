"""What can be done with the mail of an account, asked of its provider or as it was written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from postroom.errors import ProviderAuthFailed
from postroom.model.account import Account, Capabilities, CapabilityReport, RateLimits
from postroom.model.key import Scope
from postroom.model.limits import MB
from postroom.model.page import Slice
from postroom.operations.accounts import AccountId, account_of, learnt_options
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Request
from postroom.pipeline.syncing import how_to_sign_in

_MOST_ACCOUNTS = 1_000


class CheckAccount(Request):
    """Log in to an account now and tell what it can do."""

    account_id: AccountId


@operation(Scope.ADMIN)
async def check_account(ctx: Context, request: CheckAccount) -> Capabilities:
    account = await account_of(ctx, request.account_id)
    try:
        found = await ctx.providers.check(account, None)
    except ProviderAuthFailed as error:
        raise ProviderAuthFailed(how_to_sign_in(account, str(error)), **error.details) from error
    await ctx.store.set_capabilities(account.id, capabilities_json(found))
    options = learnt_options(account, found)
    if account.state == "needs_reauth" or options != account.options:
        await ctx.store.change_account(account.id, options)
    return _told(ctx, account, found)


class GetCapabilities(Request):
    """Tell what can be done with the mail of an account, or of local inboxes."""

    account_id: Annotated[
        AccountId | None, Field(description="Only this account.", examples=["work"])
    ] = None


@operation(Scope.READ)
async def get_capabilities(ctx: Context, request: GetCapabilities) -> CapabilityReport:
    asked = None if request.account_id is None else await account_of(ctx, request.account_id)
    found = await ctx.store.accounts(ctx.visible, Slice(limit=_MOST_ACCOUNTS))
    known = [(account, await _known(ctx, account)) for account in found.rows]
    told = tuple(_told(ctx, account, capabilities) for account, capabilities in known)
    if asked is not None:
        one = next(c for c in told if c.account_id == asked.id)
        return _report(one, told)
    return _report(told[0] if len(told) == 1 else _local(ctx), told)


def _report(one: Capabilities, all_of_them: tuple[Capabilities, ...]) -> CapabilityReport:
    values = {name: getattr(one, name) for name in Capabilities.__slots__}
    return CapabilityReport(**values, accounts=all_of_them)


def _local(ctx: Context) -> Capabilities:
    limits = ctx.limits
    return Capabilities(
        provider="local",
        has_threading=True,
        has_server_side_rules=False,
        max_attachment_size_mb=limits.attachments_bytes // MB,
        rate_limits=RateLimits(limits.requests_per_second, limits.requests_burst),
        has_labels=True,
        has_push=True,
        can_send=True,
        can_create_alias=True,
    )


async def _known(ctx: Context, account: Account) -> Capabilities:
    stored = await ctx.store.capabilities_of(account.id)
    if stored is None:
        return await ctx.providers.check(account, None)
    rates = RateLimits(**stored.pop("rate_limits"))
    return Capabilities(**stored, rate_limits=rates)


def _told(ctx: Context, account: Account, capabilities: Capabilities) -> Capabilities:
    """What holds for a caller here: our own limit for files, if the provider's is higher."""
    ours = ctx.limits.attachments_bytes // MB
    return replace(
        capabilities,
        account_id=account.id,
        address=account.address,
        state=account.state,
        last_refusal=account.last_refusal,
        max_attachment_size_mb=min(ours, capabilities.max_attachment_size_mb),
    )


def capabilities_json(capabilities: Capabilities) -> dict[str, Any]:
    """What is written down of them."""
    rates = capabilities.rate_limits
    return {
        "provider": capabilities.provider,
        "has_threading": capabilities.has_threading,
        "has_server_side_rules": capabilities.has_server_side_rules,
        "max_attachment_size_mb": capabilities.max_attachment_size_mb,
        "rate_limits": {
            "requests_per_second": rates.requests_per_second,
            "burst": rates.burst,
        },
        "has_labels": capabilities.has_labels,
        "has_push": capabilities.has_push,
        "can_send": capabilities.can_send,
        "can_create_alias": capabilities.can_create_alias,
        "mail_bytes": capabilities.mail_bytes,
        "files_bytes": capabilities.files_bytes,
        "text_bytes": capabilities.text_bytes,
    }
