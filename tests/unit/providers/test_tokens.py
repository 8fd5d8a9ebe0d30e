"""Tokens are renewed in time, once, and always valid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postroom.blocking import in_thread
from postroom.errors import ProviderAuthFailed
from postroom.ports.provider import Secret
from postroom.providers.accounts import Accounts, Endpoints
from postroom.providers.oauth_client import Tokens
from postroom.providers.vault import FileVault

ENDPOINTS = Endpoints(
    gmail="", gmail_login="", gmail_token="", outlook="", outlook_login="", fastmail=""
)


class Provider:
    """Issues tokens; a refresh token can be used once."""

    def __init__(self) -> None:
        self.good = "r0"
        self.count = 0

    async def refresh(self, token: str) -> Secret:
        await asyncio.sleep(0)
        if token != self.good:
            raise ProviderAuthFailed("invalid_grant")
        self.count += 1
        self.good = f"r{self.count}"
        expires = str(1000 + self.count * 3600)
        return {
            "access_token": f"a{self.count}",
            "refresh_token": self.good,
            "expires_at": expires,
        }


@pytest.fixture
def vault(tmp_path: Path) -> FileVault:
    vault = FileVault(tmp_path)
    vault.write("work", {"access_token": "a0", "refresh_token": "r0", "expires_at": "1000"})
    return vault


async def test_a_token_is_renewed_before_it_expires_and_the_new_one_is_kept(
    vault: FileVault,
) -> None:
    provider = Provider()
    fresh = Tokens(vault, "work", provider.refresh, now=lambda: 600.0)
    late = Tokens(vault, "work", provider.refresh, now=lambda: 800.0)

    assert "Bearer a0" == await fresh.header()
    assert "Bearer a1" == await late.header()
    assert "r1" == (vault.read("work") or {})["refresh_token"]


async def test_concurrent_renewals_make_one_request(vault: FileVault) -> None:
    provider = Provider()
    both = [Tokens(vault, "work", provider.refresh, now=lambda: 800.0) for _ in range(2)]

    headers = await asyncio.gather(*(tokens.header() for tokens in both))

    assert (["Bearer a1"] * 2, 1) == (list(headers), provider.count)


async def test_a_new_login_during_a_renewal_is_kept(
    tmp_path: Path,
) -> None:
    accounts = Accounts(tmp_path, "file", ENDPOINTS, 1)
    old = {"access_token": "a0", "refresh_token": "r0", "expires_at": "1000"}
    accounts.store_secret("work", old)
    new = {"access_token": "other", "refresh_token": "own", "expires_at": "9000"}
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def refresh(token: str) -> Secret:
        begun.set()
        await goes_on.wait()
        return {**old, "access_token": "a1"}

    tokens = Tokens(accounts.vault, "work", refresh, now=lambda: 800.0)
    renewal_lock = asyncio.create_task(tokens.header())
    await begun.wait()
    keeping = asyncio.create_task(in_thread(accounts.store_secret, "work", new))
    await asyncio.wait([keeping], timeout=0.1)
    goes_on.set()
    await asyncio.gather(renewal_lock, keeping)

    assert new == accounts.vault.read("work")


async def test_a_refused_token_is_renewed(vault: FileVault) -> None:
    provider = Provider()
    tokens = Tokens(vault, "work", provider.refresh, now=lambda: 0.0)
    refused = await tokens.header()

    assert await tokens.renew(refused)
    assert "Bearer a1" == await tokens.header()


async def test_a_refused_refresh_token_needs_a_new_login(vault: FileVault) -> None:
    provider = Provider()
    provider.good = "another"
    tokens = Tokens(vault, "work", provider.refresh, now=lambda: 800.0)

    with pytest.raises(ProviderAuthFailed):
        await tokens.header()
    assert "r0" == (vault.read("work") or {})["refresh_token"]


async def test_without_a_refresh_token_an_expired_token_needs_a_new_login(vault: FileVault) -> None:
    vault.write("work", {"access_token": "a0", "expires_at": "1000"})
    tokens = Tokens(vault, "work", Provider().refresh, now=lambda: 2000.0)

    with pytest.raises(ProviderAuthFailed):
        await tokens.header()
