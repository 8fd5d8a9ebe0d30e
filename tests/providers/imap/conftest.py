"""Real servers, one of each kind for all tests of a worker; each test has its own mailboxes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.live import ImapAccounts
from tests.servers.cyrus import Cyrus
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.imaplib_client import ImaplibMailbox, ImapServer, imaplib_mailbox

AS_ROOT = pytest.mark.may_skip("Cyrus starts only as root")


def account(server: ImapServer, user: str = "alice", **changes: object) -> ImapAccount:
    """A login at a real server, over verified TLS."""
    given = {"port": server.imaps, "ca_file": server.certificate, **changes}
    return ImapAccount("default", "127.0.0.1", user, PASSWORD, **given)  # type: ignore[arg-type]


def local(port: int, **changes: object) -> ImapAccount:
    """A login at a scripted server, without TLS."""
    given = {"port": port, "security": "none", **changes}
    return ImapAccount("default", "127.0.0.1", "ana", "s3cret", **given)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(
    *accounts: ImapAccount, timeouts: ImapTimeouts | None = None
) -> AsyncIterator[ImapAccounts]:
    """Live accounts that are closed at the end."""
    live = ImapAccounts(accounts, timeouts or ImapTimeouts(), is_write_enabled=True)
    try:
        yield live
    finally:
        await live.close()


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot() as server:
        yield server


@pytest.fixture(scope="session")
def cyrus() -> Iterator[Cyrus]:
    if os.getuid() != 0:
        pytest.skip("Cyrus starts only as root")
    with Cyrus() as server:
        yield server


@pytest.fixture(params=["dovecot", pytest.param("cyrus", marks=AS_ROOT)])
def server(request: pytest.FixtureRequest) -> ImapServer:
    """Every server passes the same tests."""
    found: ImapServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def box(server: ImapServer) -> Iterator[ImaplibMailbox]:
    """A mailbox for one test."""
    with imaplib_mailbox(server, "alice") as opened:
        yield opened


@pytest.fixture
async def live(server: ImapServer) -> AsyncIterator[ImapAccounts]:
    async with connected(account(server)) as accounts:
        yield accounts
