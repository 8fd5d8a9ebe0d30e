"""Mail that leaves over JMAP: the port `Sender`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import ProviderError
from postroom.model.inbox import DRAFTS, SENT
from postroom.model.outbox import Envelope, Outcome
from postroom.ports.sender import Accepted
from postroom.providers.jmap.client import refusal, said_of
from postroom.providers.jmap.provider import JmapProvider
from postroom.providers.message_ids import message_id_of
from postroom.providers.outcomes import Go, handed_over

_LATER = ("overQuota", "rateLimit")


@dataclass(eq=False)
class JmapSender:
    """Takes mail out over JMAP: a draft, and a submission that names it and moves it to Sent.

    In Drafts nobody takes it for sent; what is refused does not stay there for others to send.
    A copy that we have put into Sent before is the one that is named.
    """

    provider: JmapProvider

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        begun: list[str] = []

        async def submit(go: Go) -> Outcome:
            return await self._submit(envelope, raw, go, begun)

        async def undo() -> None:
            if begun:
                await self.provider.destroy(begun)

        return await handed_over(envelope, accepted, submit, undo)

    async def _submit(self, envelope: Envelope, raw: bytes, go: Go, begun: list[str]) -> Outcome:
        provider = self.provider
        await provider.mailboxes.learn()
        identity = await self._identity(envelope.sender)
        kept = await self._kept(raw, begun)
        then = {"#s": await self._as_sent()}
        await go()
        submission = _submission(envelope, identity, kept)
        arguments = {"create": {"s": submission}, "onSuccessUpdateEmail": then}
        (answer,) = await provider.client.call(("EmailSubmission/set", arguments))
        if (answer.get("created") or {}).get("s"):
            return Outcome("sent", "the provider has it")
        refused = (answer.get("notCreated") or {}).get("s")
        if not refused:
            raise ProviderError("the provider does not say whether it sends the mail")
        return _refused(refused)

    async def _kept(self, raw: bytes, begun: list[str]) -> str:
        """The mail as it is at the provider; what its owner has of it already was not begun."""
        message_id = message_id_of(raw)
        found = await self.provider.find(SENT, message_id)
        if found:
            return found[0]
        await self.provider.drop_drafts(message_id)
        key, is_new = await self.provider.import_into(DRAFTS, raw)
        if is_new:
            begun.append(key)
        return key

    async def _as_sent(self) -> dict[str, Any]:
        """What makes a sent mail of a draft, once it is sent (RFC 8621 §7.5)."""
        sent = await self.provider.mailboxes.id_of(SENT)
        return {"mailboxIds": {sent: True}, "keywords/$draft": None}

    async def _identity(self, sender: str) -> str:
        (answer,) = await self.provider.client.call(("Identity/get", {"ids": None}))
        rows = answer.get("list", [])
        for row in rows:
            if str(row.get("email", "")).lower() == sender.lower():
                return str(row["id"])
        domain = sender.rpartition("@")[2].lower()
        for row in rows:
            if str(row.get("email", "")).lower() in (f"*@{domain}", ""):
                return str(row["id"])
        if rows:
            return str(rows[0]["id"])
        raise ProviderError("the provider has no identity to send from")

    async def close(self) -> None:
        await self.provider.close()


def _submission(envelope: Envelope, identity: str, email: str) -> dict[str, Any]:
    return {
        "identityId": identity,
        "emailId": email,
        "envelope": {
            "mailFrom": {"email": envelope.sender},
            "rcptTo": [{"email": address} for address in envelope.recipients],
        },
    }


def _refused(refused: Mapping[str, Any]) -> Outcome:
    """What a refusal of a submission comes to; for some there is room or time later."""
    error = refusal("EmailSubmission/set", refused)
    if refused.get("type") in _LATER:
        return Outcome("deferred", f"the provider does not send it now: {said_of(refused)}")
    if error.retryable:
        raise error
    return Outcome("failed", f"the provider does not send it: {said_of(refused)}")
