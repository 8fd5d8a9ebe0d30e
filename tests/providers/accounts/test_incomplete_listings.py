"""Servers that omit existing mail from listings: nothing is missed, and nothing is deleted."""

from __future__ import annotations

import imaplib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.pipeline.sync import SyncPass
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import ImapRemote
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.servers.dovecot import PASSWORD
from tests.servers.imap_script import ImapCommand, ScriptedImap, mails, scripted

NOTHING = b"* SEARCH\r\n{tag} OK done\r\n"
CAPABILITIES = "IMAP4rev1 UIDPLUS"


@asynccontextmanager
async def at(server: ScriptedImap, folder: Path) -> AsyncIterator[SyncedAccount]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    account: dict[str, Any] = {
        "provider": "imap",
        "address": "alice@example.com",
        "password": "secret",
        "host": "127.0.0.1",
        "port": server.port,
        "security": "none",
        "insecure": True,
    }
    async with open_app(read_settings(values).settings) as app:
        remote: Any = type("Remote", (), {"arguments": account})
        yield await add_synced_account(app, remote)


async def test_a_first_sync_reads_mail_that_searches_omit(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies = {"UID SEARCH": NOTHING}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        first = len(await synced.rows())
        boxes[b"INBOX"] |= {6: mails(6)[6]}
        await synced.sync()

        assert (5, 6) == (first, len(await synced.rows()))


async def test_an_empty_listing_deletes_nothing(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies: dict[str, bytes] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        replies |= {"UID SEARCH": NOTHING, "FETCH": b"{tag} OK nothing\r\n"}
        with pytest.raises(ProviderError, match="lists none"):
            await synced.sync()
        replies.clear()
        await synced.sync()

        assert 5 == len(await synced.rows())


async def test_an_inaccessible_mailbox_deletes_nothing(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(2), b"Work": mails(4)}
    replies: dict[str, Any] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        before = len(await synced.rows())
        replies["STATUS"] = b"{tag} NO [NOPERM] not for you\r\n"
        await synced.sync()
        closed = len(await synced.rows())
        replies.clear()
        boxes[b"Work"] |= {9: mails(9)[9]}
        await synced.sync()

        assert (4, 4, 5) == (before, closed, len(await synced.rows()))


INBOX, WORK = b'* LIST () "/" INBOX\r\n', b'* LIST () "/" Work\r\n'


@pytest.mark.parametrize(("listed", "error"), [(b"", "INBOX"), (WORK, "INBOX"), (INBOX, None)])
async def test_a_mailbox_missing_in_the_list_keeps_its_mail(
    tmp_path: Path, listed: bytes, error: str | None
) -> None:
    boxes = {b"INBOX": mails(2), b"Work": {number: mails(9)[number] for number in (7, 8, 9)}}
    replies: dict[str, bytes] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
        synced.app.services.providers.open(synced.account) as provider,
    ):
        one = SyncPass(synced.app.services, synced.account, provider)
        await one.begin()
        await one.run()
        before = {row.id for row in await synced.rows()}
        replies["LIST"] = listed + b"{tag} OK done\r\n"
        with pytest.raises(ProviderError, match=error) if error else nullcontext():
            await one.run()
        hidden = {row.id for row in await synced.rows()}
        replies.clear()
        await one.run()
        after = {row.id for row in await synced.rows()}
        del boxes[b"Work"]
        await one.run()

        assert 5 == len(before)
        assert before == hidden == after
        assert 2 == len(await synced.rows())


def without_content(content: bytes) -> Callable[[ImapCommand], bytes | None]:
    def fetch(command: ImapCommand) -> bytes | None:
        if b"BODY.PEEK[]" not in command.rest:
            return None
        return b"* 1 FETCH (UID 1 RFC822.SIZE 99 BODY[] %s)\r\n{tag} OK\r\n" % content

    return fetch


@pytest.mark.parametrize("content", [b"NIL", b"{0}\r\n"])
async def test_a_mail_that_comes_without_content_is_fetched_later(
    tmp_path: Path, content: bytes
) -> None:
    replies: dict[str, Any] = {"UID FETCH": without_content(content)}
    boxes = {b"INBOX": mails(1)}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
        synced.app.services.providers.open(synced.account) as provider,
    ):
        one = SyncPass(synced.app.services, synced.account, provider)
        await one.begin()
        for _ in range(2):
            await one.run()
        replies.clear()
        await one.run(is_requested=True)

        assert 1 == len(await synced.rows())


async def test_a_message_described_in_several_responses_is_stored(tmp_path: Path) -> None:
    def fetch(command: ImapCommand) -> bytes | None:
        if b"BODY" in command.rest:
            return None
        return (
            b"* 1 FETCH (UID 1 FLAGS (\\Seen))\r\n"
            b"* 1 FETCH (UID 1 INTERNALDATE NIL RFC822.SIZE 99)\r\n{tag} OK\r\n"
        )

    boxes = {b"INBOX": mails(1)}
    async with (
        scripted(
            mailboxes=boxes, capabilities=CAPABILITIES, replies={"UID FETCH": fetch}
        ) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()

        assert [("seen",)] == [row.flags for row in await synced.rows()]


@pytest.mark.parametrize("remote", ["imap"], indirect=True)
async def test_changes_are_found_after_the_server_rebuilt_its_index(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    """Modification sequences begin anew, and UIDVALIDITY stays."""
    for subject in ("Kept", "Flagged", "Removed"):
        remote.deliver(outgoing_mail(subject))
    for _ in range(5):
        remote.flag("Kept")
        remote.imap.store("1", "-FLAGS", r"(\Flagged)")
    await synced.sync()
    remote.imap.logout()
    for index in (remote.home / "home" / "alice" / "mail").glob("dovecot.index*"):
        index.unlink()
    remote.imap = imaplib.IMAP4("127.0.0.1", remote.port)
    remote.imap.login("alice", PASSWORD)
    remote.flag("Flagged")
    remote.remove("Removed")
    await synced.sync()

    found = {row.subject: "flagged" in row.flags for row in await synced.rows()}
    assert {"Kept": False, "Flagged": True} == found


async def test_a_mailbox_that_cannot_be_opened_does_not_block_others(tmp_path: Path) -> None:
    boxes = {name: {uid: mails(uid)[uid]} for uid, name in enumerate((b"INBOX", b"A", b"B"), 1)}

    def examine(command: ImapCommand) -> bytes | None:
        return b"{tag} NO [SERVERBUG] broken index\r\n" if command.rest == b"A" else None

    def status(command: ImapCommand) -> bytes:
        name = command.rest.split()[0]
        items = b"MESSAGES 1 UIDNEXT 9 UIDVALIDITY 7"
        return b"* STATUS %s (%s)\r\n{tag} OK done\r\n" % (name, items)

    replies: dict[str, Any] = {"EXAMINE": examine, "STATUS": status}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        with pytest.raises(ProviderError, match=r"A: .*broken index"):
            await synced.sync()

        assert [("B",), ("Inbox",)] == sorted(row.mailboxes for row in await synced.rows())
