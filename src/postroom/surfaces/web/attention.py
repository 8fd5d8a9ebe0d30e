"""What needs the person: held and failed mail, accounts, rules, webhooks, keys and space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from postroom.model.account import Account
from postroom.model.health import Load
from postroom.model.key import Key, Scope
from postroom.operations.accounts import list_accounts
from postroom.operations.health import get_load
from postroom.operations.keys import list_keys
from postroom.operations.rule_runs import list_stopped_rules
from postroom.operations.webhooks import list_deliveries, list_webhooks
from postroom.surfaces.web.page import Visit

EXPIRES_SOON = timedelta(days=14)
LITTLE_SPACE = 1024**3
LONG_QUEUE = 1_000
_PAGES = 10
_MAX_WEBHOOKS = 20
_DELIVERIES = 20


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for the person: what, why, and where it is fixed."""

    tone: Literal["warn", "bad"]
    what: str
    why: str
    link: str
    action: str


async def needs_of(visit: Visit, counts: Mapping[str, int], *, is_paused: bool) -> list[Need]:
    """What needs the person, as far as they may see and fix it; most urgent first."""
    found = [*_of_mail(counts, is_paused=is_paused)]
    if visit.may(Scope.READ):
        found += [*_of_accounts((await visit.call(list_accounts, limit=100)).results)]
        found += [
            Need("bad", f"The rule “{rule.name}” has stopped", rule.reason, "/rules", "Open rules")
            for rule in await visit.call(list_stopped_rules)
        ]
    if visit.may(Scope.ADMIN):
        found += await _of_webhooks(visit)
    if sees_installation(visit):
        found += _of_keys(await _keys(visit), visit.app.services.clock())
    return found


def sees_installation(visit: Visit) -> bool:
    """Whether the person may see what concerns the whole installation."""
    sees = visit.person.caller.sees_everything
    return sees and visit.may(Scope.ADMIN) and visit.may(Scope.READ)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _of_mail(counts: Mapping[str, int], *, is_paused: bool) -> Iterator[Need]:
    if held := counts.get("held", 0):
        is_waiting = "is waiting" if held == 1 else "are waiting"
        why = "See what an agent wants to send, then approve or reject it."
        yield Need(
            "warn", f"{_messages(held)} {is_waiting} for your approval", why, "/outgoing", "Review"
        )
    if is_paused:
        why = "Mail is accepted but not sent. Run `postroom outbox resume` to send it."
        yield Need("bad", "The outbox is paused", why, "/outgoing", "View outgoing mail")
    if failed := counts.get("failed", 0):
        why = "The recipient's server rejected it. See why, then send it again if that helps."
        link = "/outgoing?status=failed"
        yield Need("bad", f"{_messages(failed)} could not be delivered", why, link, "See why")
    if unknown := counts.get("unknown", 0):
        why = (
            "The connection broke before the server confirmed. Ask the recipient before you resend."
        )
        link = "/outgoing?status=unknown"
        yield Need("bad", f"{_messages(unknown)} may or may not have been sent", why, link, "View")


def _of_accounts(accounts: tuple[Account, ...]) -> Iterator[Need]:
    for account in accounts:
        if account.state == "needs_reauth":
            what = f"{account.address} needs you to sign in"
            yield Need("bad", what, account.detail, "/accounts", "Sign in")
        elif account.state == "failing":
            what = f"{account.address} is not syncing"
            yield Need("bad", what, account.detail, "/accounts", "Open accounts")


async def _of_webhooks(visit: Visit) -> list[Need]:
    found = []
    webhooks = (await visit.call(list_webhooks, limit=_MAX_WEBHOOKS)).results
    for webhook in webhooks:
        if webhook.stopped:
            what = f"The webhook {webhook.url} has stopped"
            found.append(Need("bad", what, webhook.stopped, "/webhooks", "Open webhooks"))
        elif webhook.enabled and (why := await _failure(visit, webhook.id)):
            what = f"The webhook {webhook.url} is failing"
            found.append(Need("warn", what, why, "/webhooks", "Open webhooks"))
    return found


async def _failure(visit: Visit, webhook_id: str) -> str:
    """Why deliveries to a webhook fail lately; empty if they do not."""
    page = await visit.call(list_deliveries, webhook_id=webhook_id, limit=_DELIVERIES)
    failed = [one for one in page.results if one.status != "delivered" and one.attempts]
    if not failed:
        return ""
    deliveries = "1 delivery" if len(failed) == 1 else f"{len(failed)} deliveries"
    return f"{deliveries} of the last {len(page.results)} failed: {failed[0].detail}"


async def _keys(visit: Visit) -> list[Key]:
    page = await visit.call(list_keys, limit=100)
    found = [*page.results]
    for _ in range(_PAGES):
        if page.next_cursor is None:
            break
        page = await visit.call(list_keys, limit=100, cursor=page.next_cursor)
        found += page.results
    return found


def _of_keys(keys: list[Key], now: datetime) -> list[Need]:
    soon = [key for key in keys if key.expires_at and now < key.expires_at <= now + EXPIRES_SOON]
    return [
        Need(
            "warn",
            f"The key “{key.name}” expires soon",
            f"It expires on {key.expires_at:%-d %b %Y}. Extend it, or replace it with a new key.",
            "/keys",
            "Open keys",
        )
        for key in sorted(soon, key=lambda key: (key.expires_at, key.id))
    ]


async def load_of(visit: Visit) -> Load | None:
    """What waits and how much space is left; None for whoever may not see that."""
    if not sees_installation(visit):
        return None
    return await visit.call(get_load)
