"""Mail that leaves over Microsoft Graph: the port `Sender`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postroom.blocking import in_thread
from postroom.model.outbox import Envelope, Outcome
from postroom.ports.sender import Accepted
from postroom.providers.bcc import with_bcc
from postroom.providers.graph.client import SENT_AT_ONCE_BYTES, GraphClient
from postroom.providers.graph.parting import part_from_files
from postroom.providers.outcomes import Go, handed_over


@dataclass(eq=False)
class GraphSender:
    """Takes mail out over Graph, which puts a copy into Sent Items."""

    client: GraphClient

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        async def submit(go: Go) -> Outcome:
            whole = await in_thread(with_bcc, raw, envelope.recipients)
            if len(whole) <= SENT_AT_ONCE_BYTES:
                await go()
                await self.client.send_mime(whole)
            else:
                letter, files = await in_thread(part_from_files, whole)
                draft = await self.client.create_draft(letter)
                for file in files:
                    await self.client.attach(draft, file.name, file.content_type, file.content)
                await go()
                await self.client.send_draft(draft)
            return Outcome("sent", "Microsoft has it")

        return await handed_over(envelope, accepted, submit)

    async def close(self) -> None:
        await self.client.api.close()
