"""An installation with a month of activity."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.calls.operation import call
from postroom.model.health import CallCount
from postroom.operations.keys import delete_key
from postroom.operations.rules import create_rule
from postroom.store.sql.events import count_mail
from postroom.store.transaction import Transaction
from tests.isolation.tenants import rule_yaml
from tests.mails import deliver, mail
from tests.stores.accounts import new_account
from tests.surfaces.web.conftest import WebInstallation

HOSTILE = '<img src=x onerror=alert(1)>"\u202e'


@pytest.fixture
async def busy(installation: WebInstallation) -> WebInstallation:
    """Mail in and out for a month, held mail, an account, a rule and a key with a problem each."""
    services, now = installation.app.services, installation.app.services.clock()
    inbox = (await services.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]

    def count(tx: Transaction) -> None:
        for back in range(1, 30):
            at = now - timedelta(days=back)
            count_mail(tx, "received", 1, at, count=back * 7 % 23)
            count_mail(tx, "sent", 1, at, via="mcp", count=back * 5 % 11)
            count_mail(tx, "sent", 1, at, via="web", count=back % 4)
            count_mail(tx, "sent", 1, at, via="rule", count=back % 3)
            count_mail(tx, "rules", 1, at, count=back * 3 % 8)

    await services.store.engine.write(count)
    await services.store.count_calls(
        [
            CallCount(
                (now - timedelta(days=back)).date(), "agent", "mcp", tool, 40 - back, back % 3
            )
            for back in range(12)
            for tool in ("search_messages", "read_mail")
        ]
    )
    for number in range(3):
        await deliver(services, inbox, mail(f"Invoice {number} {HOSTILE}"))
    await installation.hold()
    account = await new_account(services)
    await services.store.set_account_state(
        account.id, "needs_reauth", "the server refused the login; sign in again"
    )
    await installation.key("read", expires_at="7d")
    agent = await installation.agent("read", "write")
    made = {"rule_yaml": rule_yaml("Invoices", "flag", inbox=inbox.id), "dry_run": False}
    await call(agent, create_rule, made)
    await call(installation.owner, delete_key, {"key_id": agent.caller.key_id})
    return installation
