"""The part of the store that keeps webhooks; their secrets are encrypted in the database.

They are encrypted with AES-GCM, with a key derived from that of the audit log, which is outside the
database, on every machine that shares it, and in every backup. A secret is bound to the id of its
webhook. Three forms are stored:

    $seal1$<base64>   a nonce and the encrypted secret
    $derived$         the webhook of a rule; its secret is derived from its id
    whsec_…           in the clear, by an earlier version; encrypted when the database is opened

The first two are not valid base64, so that a process of an earlier version raises an error and
leaves the delivery to others, instead of signing with a wrong secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from postroom.blocking import in_thread
from postroom.model.event import EVERY_WEBHOOK, SIGNING_PREFIX, Webhook, WebhookCapacity, WebhookJob
from postroom.model.inbox import Visible
from postroom.store.audited_store import AuditedStore, AuditHmac, reads, writes
from postroom.store.sql import webhooks as sql_webhooks
from postroom.store.transaction import Transaction

DERIVED = "$derived$"
_ENCRYPTED = "$seal1$"
_NONCE_BYTES = 12
_IN_CLEAR = f"secret LIKE '{SIGNING_PREFIX[:-1]}%' OR old_secret LIKE '{SIGNING_PREFIX[:-1]}%'"
IN_CLEAR = f"SELECT id, secret, old_secret FROM webhooks WHERE {_IN_CLEAR} ORDER BY number"
ANY_IN_CLEAR = f"SELECT 1 FROM webhooks WHERE {_IN_CLEAR} LIMIT 1"
REPLACE = """
    UPDATE webhooks SET secret = :secret, old_secret = :old_secret
     WHERE id = :id AND secret = :was
"""


class CannotDecrypt(ValueError):
    """A secret was encrypted with another key or for another webhook, or is damaged."""


def encrypt_secret(audit_hmac: AuditHmac, webhook_id: str, secret: str) -> str:
    """The secret as it is stored."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    encrypted = AESGCM(_key(audit_hmac)).encrypt(nonce, secret.encode(), webhook_id.encode())
    return _ENCRYPTED + base64.b64encode(nonce + encrypted).decode()


def decrypt_secret(audit_hmac: AuditHmac, webhook_id: str, stored: str) -> str:
    """The secret as the receiver has it. Raises CannotDecrypt."""
    if stored == DERIVED:
        own = hmac.digest(_key(audit_hmac), b"of " + webhook_id.encode(), hashlib.sha256)
        return SIGNING_PREFIX + base64.b64encode(own).decode()
    if not stored.startswith(_ENCRYPTED):
        return stored
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        encrypted = base64.b64decode(stored.removeprefix(_ENCRYPTED), validate=True)
        nonce, text = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        return AESGCM(_key(audit_hmac)).decrypt(nonce, text, webhook_id.encode()).decode()
    except (InvalidTag, ValueError):
        raise CannotDecrypt(
            f"the secret of {webhook_id} cannot be decrypted; renew_webhook creates a new one"
        ) from None


def _key(audit_hmac: AuditHmac) -> bytes:
    return hmac.digest(audit_hmac.key, b"webhook secrets", hashlib.sha256)


def has_secrets_in_clear(tx: Transaction) -> bool:
    """Whether an earlier version has stored secrets in the clear."""
    return tx.one(ANY_IN_CLEAR) is not None


def encrypt_secrets_in_clear(tx: Transaction, audit_hmac: AuditHmac) -> int:
    """Encrypt the secrets of an earlier version; return for how many webhooks.

    Several processes may do this at once: each row is changed once. First all secrets are replaced
    by texts of the same length, which SQLite writes over the old ones in place; a row that grows
    may move and leave its old content in a page.
    """
    rows = tx.all(IN_CLEAR)
    for webhook_id, *secrets in rows:
        _replace(tx, webhook_id, secrets, map(_blank, secrets))
    for webhook_id, *secrets in rows:
        encrypted = [secret and _stored(audit_hmac, webhook_id, secret) for secret in secrets]
        _replace(tx, webhook_id, map(_blank, secrets), encrypted)
    return len(rows)


def _blank(secret: str | None) -> str | None:
    return secret and "-" * len(secret)


def _replace(
    tx: Transaction, webhook_id: str, was: Iterable[str | None], now: Iterable[str | None]
) -> None:
    before, _ = was
    secret, old_secret = now
    tx.run(REPLACE, id=webhook_id, was=before, secret=secret, old_secret=old_secret)


def _stored(audit_hmac: AuditHmac, webhook_id: str, secret: str) -> str:
    is_clear = secret.startswith(SIGNING_PREFIX)
    return encrypt_secret(audit_hmac, webhook_id, secret) if is_clear else secret


class WebhookStore(AuditedStore):
    """Webhooks and their deliveries."""

    has_webhook = reads(sql_webhooks.has_webhook)
    webhooks = reads(sql_webhooks.list_webhooks)
    webhook = reads(sql_webhooks.get_webhook)
    remove_webhook = writes(sql_webhooks.remove_webhook)
    update_webhook = writes(sql_webhooks.update_webhook)
    next_webhook_at = reads(sql_webhooks.next_webhook_at)
    settle_webhook = writes(sql_webhooks.settle_webhook)
    webhook_deliveries = reads(sql_webhooks.list_deliveries)
    webhook_delivery = reads(sql_webhooks.get_delivery)
    redeliver = writes(sql_webhooks.redeliver)

    async def add_webhook(self, webhook: Webhook) -> None:
        encrypted = await in_thread(
            encrypt_secret, self._audit_hmac, webhook.id, webhook.secret or ""
        )
        stored = replace(webhook, secret=encrypted)
        await self.write(lambda tx: sql_webhooks.add_webhook(tx, stored), target=webhook.id)

    async def renew_webhook(
        self,
        webhook_id: str,
        secret: str,
        visible: Visible,
        now: datetime,
        *,
        made_by: str | None = None,
    ) -> Webhook:
        """Replace its secret, and its key if one is given. Raises NotFound."""
        encrypted = await in_thread(encrypt_secret, self._audit_hmac, webhook_id, secret)
        return await self.write(
            lambda tx: sql_webhooks.renew_webhook(
                tx, webhook_id, encrypted, visible, now, made_by=made_by
            )
        )

    async def webhook_target(
        self, webhook_id: str, visible: Visible, now: datetime
    ) -> tuple[str, tuple[str, ...]]:
        """Its URL and the secrets that sign; none if they cannot be decrypted. Raises NotFound."""
        url, encrypted = await self.engine.read(
            lambda tx: sql_webhooks.webhook_target(tx, webhook_id, visible, now)
        )
        return url, await in_thread(self._decrypted, webhook_id, encrypted)

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        capacity: WebhookCapacity = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        """Claim deliveries that are due and fit *capacity*; per webhook and inbox the oldest."""
        jobs = await self.write(
            lambda tx: sql_webhooks.claim_webhooks(
                tx, holder, now=now, until=until, limit=limit, capacity=capacity
            )
        )
        return await in_thread(self._opened, jobs) if jobs else []

    def _opened(self, jobs: Sequence[WebhookJob]) -> list[WebhookJob]:
        return [replace(job, secrets=self._decrypted(job.webhook_id, job.secrets)) for job in jobs]

    def _decrypted(self, webhook_id: str, secrets: Sequence[str]) -> tuple[str, ...]:
        try:
            return tuple(decrypt_secret(self._audit_hmac, webhook_id, each) for each in secrets)
        except CannotDecrypt:
            return ()
