"""Mail that leaves over the Gmail API: the port `Sender`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postroom.blocking import in_thread
from postroom.model.outbox import Envelope, Outcome
from postroom.ports.sender import Accepted
from postroom.providers.bcc import with_bcc
from postroom.providers.gmail.client import GmailClient
from postroom.providers.outcomes import Go, handed_over


@dataclass(eq=False)
class GmailSender:
    """Takes mail out over the Gmail API, which puts a copy into Sent."""

    client: GmailClient

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        async def submit(go: Go) -> Outcome:
            whole = await in_thread(with_bcc, raw, envelope.recipients)
            await go()
            await self.client.send(whole)
            return Outcome("sent", "Gmail has it")

        return await handed_over(envelope, accepted, submit)

    async def close(self) -> None:
        await self.client.api.close()
