"""Large mail goes out in the pieces that a provider takes, and arrives whole."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from random import Random

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.operations import sending
from tests.providers.accounts.conftest import open_desk
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.worlds import GraphWorld
from tests.servers.graph import Graph

MB = 2**20


@pytest.mark.parametrize(("size", "sessions"), [(2 * MB, 0), (7 * MB, 1)])
async def test_files_above_three_megabytes_go_to_outlook_in_sessions(
    tmp_path: Path, size: int, sessions: int
) -> None:
    content = Random(7).randbytes(size)
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    with Graph() as graph:
        world = GraphWorld(graph)
        settings = read_settings({**values, **world.settings}).settings
        async with open_app(settings) as app:
            desk = await open_desk(app, world)
            await desk.sync()
            work = asyncio.create_task(app.outbox().run())
            file = {"filename": "Überblick.bin", "content_type": "application/x-data"}
            sent = await ask(
                desk,
                sending.send_message,
                to=["bo@elsewhere.example"],
                bcc=["hidden@elsewhere.example"],
                subject="The plan",
                body_text="See the file.",
                attachments=[{**file, "content": b64encode(content).decode()}],
                wait_s=30,
            )
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await desk.sync()
            await desk.sync()

            assert "sent" == sent.status, sent
            assert [sent.message_id] == [row.id for row in await desk.rows()]
        assert sessions == len(graph.uploads)
        assert max(len(asked.body) for asked in graph.asked) < 4 * MB

        (raw,) = graph.sent
        mail = message_from_bytes(raw, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        (part,) = mail.iter_attachments()
        assert ("Überblick.bin", content) == (part.get_filename(), part.get_content())
        assert "hidden@elsewhere.example" in str(mail["Bcc"])
        assert [] == [m for m in graph.mails.values() if m.is_draft]
