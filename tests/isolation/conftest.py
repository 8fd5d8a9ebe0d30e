"""A Postroom that two tenants share, and keys with limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import Settings, read_settings
from postroom.model.key import OWNER
from postroom.operations import keys, rules, webhooks
from tests.isolation.tenants import Tenant, populate, rule_yaml
from tests.servers.ports import free_port

OWN, OTHER = "zephyr", "quokka"


@dataclass(frozen=True)
class SharedInstallation:
    """The installation and its two tenants."""

    app: App
    own: Tenant
    other: Tenant

    async def key(self, scopes: list[str], limits: dict[str, Any]) -> str:
        """A new key with these limits, created by the owner."""
        ctx = self.app.context(OWNER)
        made = await call(ctx, keys.create_key, {"name": "tried", "scopes": scopes, **limits})
        return made.key or ""


@pytest.fixture(scope="session")
async def populated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tenant, Tenant]:
    """A data folder with the objects of both tenants."""
    folder = tmp_path_factory.mktemp("isolation") / "data"
    async with open_app(_settings(folder)) as app:
        own = await populate(app, OWN, "wordofzephyr")
        other = await populate(app, OTHER, "wordofquokka")
        await _belongs_to_all_tenants(app, other.word)
    return folder, own, other


@pytest.fixture
async def shared(
    populated: tuple[Path, Tenant, Tenant], tmp_path: Path
) -> AsyncIterator[SharedInstallation]:
    """An open copy of that folder, for each test."""
    folder, own, other = populated
    copytree(folder, tmp_path / "data")
    async with open_app(_settings(tmp_path / "data")) as app:
        yield SharedInstallation(app, own, other)


def _settings(folder: Path) -> Settings:
    environ = {"POSTROOM_DATA_DIR": str(folder), "MAIL_IMAP_WRITE_ENABLED": "true"}
    for name in (OWN, OTHER):
        live = {"HOST": "127.0.0.1", "PORT": free_port(), "USER": "u", "PASS": "p"}
        more = {"SECURE": "false", "INSECURE": "true"}
        for setting, value in (live | more).items():
            environ[f"MAIL_IMAP_{name.upper()}LIVE_{setting}"] = str(value)
    return read_settings(environ).settings


async def _belongs_to_all_tenants(app: App, word: str) -> None:
    """Create a rule, a webhook and a key for everything, which no limited key sees."""
    ctx = app.context(OWNER)
    rule = {"rule_yaml": rule_yaml(f"{word} of all", "unflag"), "dry_run": False}
    await call(ctx, rules.create_rule, rule)
    await call(ctx, webhooks.create_webhook, {"url": f"https://example.com/{word}/of/all"})
    await call(ctx, keys.create_key, {"name": f"{word} of all"})
