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
from postroom.providers.message_ids import message_id_of
from postroom.providers.outcomes import Go, handed_over


@dataclass(eq=False)
class GraphSender:
    """Takes mail out over Graph, which puts a copy into Sent Items."""

    client: GraphClient

    async def hand_over(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        begun: list[str] = []

        async def submit(go: Go) -> Outcome:
            whole = await in_thread(with_bcc, raw, envelope.recipients)
            if len(whole) <= SENT_AT_ONCE_BYTES:
                await go()
                await self.client.send_mime(whole)
            else:
                await self._draft(whole, begun)
                await go()
                await self.client.send_draft(begun[0])
            return Outcome("sent", "Microsoft has it")

        async def undo() -> None:
            for key in begun:
                await self.client.drop(key)

        return await handed_over(envelope, accepted, submit, undo)

    async def _draft(self, whole: bytes, begun: list[str]) -> None:
        """Put a large mail together in Drafts; what was begun before goes."""
        letter, files = await in_thread(part_from_files, whole)
        await self.client.drop_drafts(message_id_of(whole))
        begun.append(await self.client.create_draft(letter))
        for file in files:
            await self.client.attach(begun[0], file.name, file.content_type, file.content)

    async def close(self) -> None:
        await self.client.api.close()
