"""Secrets of webhooks are encrypted in the database; with the key they still sign."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.model.event import Webhook, WebhookJob, new_webhook_secret
from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.pipeline.webhooks import Webhooks, sign
from postroom.store import sqlite, webhooks
from postroom.store.audited_store import AuditHmac
from postroom.store.open import KEY_FILE, load_key
from postroom.store.sql.events import WebhookAuthority, insert_rule_delivery
from postroom.store.sql.webhooks import add_webhook
from postroom.store.store import Store
from postroom.store.webhooks import CannotDecrypt, decrypt_secret, encrypt_secret
from tests.mails import deliver, mail
from tests.stores.conftest import OpenAgain

NOW = datetime(2026, 6, 1, tzinfo=UTC)
URL = "https://example.com/hook"
STORED = "SELECT secret, old_secret FROM webhooks ORDER BY number"


def hook(number: int) -> Webhook:
    return Webhook(f"whk_{number}", URL, (), EVERYTHING, NOW, secret=new_webhook_secret())


async def stored(store: Any) -> list[tuple[str, str | None]]:
    return [tuple(row) for row in await store.engine.read(lambda tx: tx.all(STORED))]


async def claimed(store: Any) -> list[WebhookJob]:
    end = datetime.now(UTC) + timedelta(days=3650)
    jobs = await store.claim_webhooks("me", now=end, until=end, limit=10)
    return sorted(jobs, key=lambda job: job.webhook)


def write_as_before(tx: Any, webhook: Webhook, old: str | None = None) -> None:
    """What an earlier version has written."""
    add_webhook(tx, webhook)
    tx.run("UPDATE webhooks SET old_secret = :old WHERE id = :id", old=old, id=webhook.id)


async def test_a_secret_is_encrypted_and_signs(services: Services, inbox: Inbox) -> None:
    hooks = [hook(1), hook(2)]
    for one in hooks:
        await services.store.add_webhook(one)
    await deliver(services, inbox, mail("News"))

    assert [(one.secret,) for one in hooks] == [
        job.secrets for job in await claimed(services.store)
    ]
    kept = await stored(services.store)
    assert all(secret.startswith("$seal1$") for secret, _ in kept)
    assert not any(str(one.secret)[6:] in str(kept) for one in hooks)


async def test_both_secrets_are_encrypted_after_a_renewal(services: Services, inbox: Inbox) -> None:
    first, second = hook(1), new_webhook_secret()
    await services.store.add_webhook(first)
    renewed_at = datetime.now(UTC) + timedelta(days=3650)
    shown = await services.store.renew_webhook("whk_1", second, EVERYTHING, renewed_at)
    await deliver(services, inbox, mail("News"))

    [job] = await claimed(services.store)
    assert (second, first.secret) == job.secrets
    assert shown.secret is None
    assert "whsec_" not in str(await stored(services.store))


async def test_secrets_of_an_earlier_version_are_encrypted_at_the_start(
    open_again: OpenAgain, services: Services, inbox: Inbox
) -> None:
    hooks, old = [hook(1), hook(2)], new_webhook_secret()
    engine = services.store.engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: write_as_before(tx, hooks[0]))
    await engine.write(lambda tx: write_as_before(tx, hooks[1], old))
    await engine.write(lambda tx: tx.run("UPDATE webhooks SET secret_renewed_at = 4000000000"))
    await deliver(services, inbox, mail("News"))

    several = await asyncio.gather(*(open_again() for _ in range(3)))
    try:
        kept = await stored(several[0])
        assert "whsec_" not in str(kept)
        assert [True, False] == [secret is None for _, secret in kept]
        found = [job.secrets for job in await claimed(several[1])]
        assert [(hooks[0].secret,), (hooks[1].secret, old)] == found
    finally:
        for each in several:
            await each.close()


async def test_an_interrupted_start_keeps_every_secret(
    open_again: OpenAgain, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = [hook(1), hook(2)]
    engine = services.store.engine  # type: ignore[attr-defined]
    for one in hooks:
        await engine.write(lambda tx, one=one: write_as_before(tx, one))

    def broken(seal: AuditHmac, webhook_id: str, secret: str) -> str:
        if webhook_id == "whk_2":
            raise OSError("killed")
        return encrypt_secret(seal, webhook_id, secret)

    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "encrypt_secret", broken)
        with pytest.raises(OSError, match="killed"):
            await open_again()
    assert [(one.secret, None) for one in hooks] == await stored(services.store)
    again = await open_again()
    assert "whsec_" not in str(await stored(again))
    await again.close()


@pytest.mark.parametrize("layout", ["plain", "renewed", "grown", "removed", "mixed"])
@pytest.mark.parametrize("count", [2, 5, 20, 90])
async def test_no_file_has_a_plain_secret_after_an_upgrade(
    tmp_path: Path, layout: str, count: int
) -> None:
    """Not even in free space of rows that the earlier version extended or moved."""
    store = await sqlite.open_store(tmp_path / "postroom.db")
    hooks, first = [hook(n) for n in range(count)], new_webhook_secret()
    for number, one in enumerate(hooks):
        old = first if layout == "renewed" or (layout == "mixed" and number % 3 == 0) else None
        await store.engine.write(lambda tx, one=one, old=old: write_as_before(tx, one, old))
    for sql in CHANGES.get(layout, ()):
        await store.engine.write(lambda tx, sql=sql: tx.run(sql))
    await store.close()
    before = "".join(texts(tmp_path))
    assert str(hooks[-1].secret) in before

    opened = await sqlite.open_store(tmp_path / "postroom.db")
    running = "".join(texts(tmp_path))
    await opened.close()
    content = "".join(texts(tmp_path))
    secrets = [first, *(str(one.secret) for one in hooks)]
    assert not [secret for secret in secrets if secret[10:30] in content]
    assert "$seal1$" in running


CHANGES = {
    "grown": ["UPDATE webhooks SET url = url || '/' || hex(zeroblob(200)) WHERE number % 2"],
    "removed": ["DELETE FROM webhooks WHERE number % 3 = 1"],
    "mixed": [
        "UPDATE webhooks SET url = url || hex(zeroblob(300)) WHERE number % 4 = 1",
        "DELETE FROM webhooks WHERE number % 5 = 1",
        "UPDATE webhooks SET url = 'https://example.com/' WHERE number % 2",
    ],
}


def texts(folder: Path) -> Iterator[str]:
    for path in folder.glob("postroom.db*"):
        yield path.read_bytes().decode("latin-1")


async def test_the_secret_of_a_webhook_of_a_rule_is_stored_encrypted_only(
    services: Services, inbox: Inbox
) -> None:
    await deliver(services, inbox, mail("News"))
    engine = services.store.engine  # type: ignore[attr-defined]
    [event] = await services.store.events_after(0, limit=1, visible=EVERYTHING)
    (row,) = await engine.read(lambda tx: tx.all("SELECT number FROM inboxes"))
    await engine.write(
        lambda tx: insert_rule_delivery(
            tx, URL, event.number, row[0], WebhookAuthority("owner", EVERYTHING), NOW
        )
    )
    [job] = await claimed(services.store)

    assert [("$derived$", None)] == await stored(services.store)
    assert job.secrets[0].startswith("whsec_")
    assert 32 == len(base64.b64decode(job.secrets[0].removeprefix("whsec_")))


async def test_without_the_key_deliveries_wait_and_are_not_lost(
    open_again: OpenAgain, services: Services, inbox: Inbox
) -> None:
    one = hook(1)
    await services.store.add_webhook(one)
    await deliver(services, inbox, mail("News"))
    other = Store(services.store.engine, AuditHmac(b"x" * 32))  # type: ignore[attr-defined]
    [job] = await claimed(other)
    posted = await Webhooks(replace(services, store=other))._attempt(job)
    assert ((), None) == (job.secrets, posted.code)
    assert "postroom webhook renew whk_1" in posted.detail
    later = NOW + timedelta(days=1)
    await other.settle_webhook(job, posted, now=NOW, next_at=later)

    [again] = await claimed(services.store)
    assert (one.secret,) == again.secrets


async def test_a_secret_belongs_to_one_webhook(tmp_path: Path) -> None:
    seal = AuditHmac(load_key(tmp_path / KEY_FILE))
    secret = new_webhook_secret()
    sealed = encrypt_secret(seal, "whk_1", secret)

    assert secret == decrypt_secret(seal, "whk_1", sealed)
    for case in (
        (seal, "whk_2", sealed),
        (AuditHmac(b"y" * 32), "whk_1", sealed),
        (seal, "whk_1", sealed[:-8]),
        (seal, "whk_1", "$seal1$"),
        (seal, "whk_1", "$seal1$x"),
    ):
        with pytest.raises(CannotDecrypt):
            decrypt_secret(*case)


def test_an_earlier_version_cannot_sign_with_an_encrypted_secret(tmp_path: Path) -> None:
    seal = AuditHmac(load_key(tmp_path / KEY_FILE))
    for kept in (encrypt_secret(seal, "whk_1", new_webhook_secret()), webhooks.DERIVED):
        with pytest.raises(binascii.Error):
            sign(kept, "evt_1", 1, b"")
