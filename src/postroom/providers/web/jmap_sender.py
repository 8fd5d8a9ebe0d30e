"""Sending over JMAP: the port `Sender`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import ProviderError
from postroom.model.inbox import DRAFTS, SENT
from postroom.model.mail.sending import Envelope, Outcome
from postroom.providers.web.jmap import JmapProvider
from postroom.providers.web.jmap_client import MethodFailed, error_text, method_error
from postroom.providers.web_sender import BeforeSubmit, WebSender, message_id_of

_TEMPORARY = ("overQuota", "rateLimit")
_RELAY_DISCONNECTED = "smtpProtocolError"
"""Cyrus: the connection to its relay ended, perhaps after the relay accepted the mail."""


@dataclass(eq=False)
class JmapSender(WebSender):
    """Sends mail over JMAP: a draft, and a submission that moves it to Sent.

    The draft of a refused mail is deleted. If Sent already has a copy from us, that is submitted.
    """

    name = "the JMAP server"
    provider: JmapProvider
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def _discard(self, drafts: Sequence[str]) -> None:
        await self.provider.destroy(drafts)

    async def _submit(
        self, envelope: Envelope, raw: bytes, before_submit: BeforeSubmit, drafts: list[str]
    ) -> Outcome:
        provider = self.provider
        await provider.mailboxes.load()
        identity = await self._identity(envelope.sender)
        # QUIRK: Cyrus does not always find an upload while another process of it imports mail of
        # the same account.
        async with self._importing:
            email = await self._stored_id(raw, drafts)
        # The update makes a sent mail of the draft once it is sent (RFC 8621 §7.5).
        sent = await provider.mailboxes.id_of(SENT)
        update = {"mailboxIds": {sent: True}, "keywords/$draft": None}
        await before_submit()
        to = [{"email": address} for address in envelope.recipients]
        route = {"mailFrom": {"email": envelope.sender}, "rcptTo": to}
        submission = {"identityId": identity, "emailId": email, "envelope": route}
        arguments = {"create": {"s": submission}, "onSuccessUpdateEmail": {"#s": update}}
        response = await provider.client.call("EmailSubmission/set", arguments)
        if (response.get("created") or {}).get("s"):
            return Outcome("sent", "accepted by the provider")
        refused = (response.get("notCreated") or {}).get("s")
        if not refused:
            problem = "no result of the submission"
            raise ProviderError(f"unexpected response from {self.name}: {problem}")
        return _outcome_of_refusal(refused)

    async def _stored_id(self, raw: bytes, drafts: list[str]) -> str:
        """The id of the mail at the provider; *drafts* gets it if it was created for this."""
        message_id = message_id_of(raw)
        found = await self.provider.find(SENT, message_id)
        if found:
            return found[0]
        await self.provider.delete_drafts(message_id)
        key, is_new = await self.provider.import_into(DRAFTS, raw)
        if is_new:
            drafts.append(key)
        return key

    async def _identity(self, sender: str) -> str:
        response = await self.provider.client.call("Identity/get", {"ids": None})
        rows = response.get("list", [])
        any_address = f"*@{sender.rpartition('@')[2].lower()}"
        for emails in ((sender.lower(),), (any_address, "")):
            for row in rows:
                if str(row.get("email", "")).lower() in emails:
                    return str(row["id"])
        if not rows:
            raise ProviderError("the provider has no identity to send from")
        return str(rows[0]["id"])

    async def close(self) -> None:
        await self.provider.close()


def _outcome_of_refusal(refused: Mapping[str, Any]) -> Outcome:
    """The outcome of a refused submission; some refusals are temporary.

    QUIRK: Cyrus answers `forbiddenToSend` also if its relay defers a mail; the description is then
    the response of the relay with an enhanced status code of class 4 (RFC 3463 §3.1).
    """
    error = method_error("EmailSubmission/set", refused)
    if refused.get("type") == _RELAY_DISCONNECTED:
        raise MethodFailed(str(error), _RELAY_DISCONNECTED)
    if refused.get("type") in _TEMPORARY or str(refused.get("description")).startswith("4."):
        return Outcome("deferred", f"refused by the provider for now: {error_text(refused)}")
    if error.retryable:
        raise error
    return Outcome("failed", f"refused by the provider: {error_text(refused)}")
