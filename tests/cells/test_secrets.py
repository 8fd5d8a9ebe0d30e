"""New keys, tokens, links and sessions contain the name of their cell; older ones still work."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.calls.authentication import (
    cell_of,
    new_secret,
    new_sign_in_link,
    sign_in_with_link,
    signed_in,
)
from postroom.calls.oauth import new_token
from postroom.calls.operation import call
from postroom.config import ConfigError, read_settings
from postroom.errors import Unauthenticated
from postroom.model.key import OWNER
from postroom.operations.keys import create_key
from postroom.surfaces.cli.logs import _masked

RANDOM = r"[A-Za-z0-9_-]{43}"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_CELL": "a1"}).settings
    async with open_app(settings) as opened:
        yield opened


def in_cell(app: App, name: str | None) -> App:
    return replace(app, services=replace(app.services, cell=name))


async def test_a_new_key_names_its_cell(app: App) -> None:
    made = await call(app.context(OWNER), create_key, {"name": "x", "scopes": ["read"]})
    owner = await app.owner_key()

    assert made.key
    assert re.fullmatch(f"pk_a1_{RANDOM}", made.key)
    assert owner
    assert re.fullmatch(f"pk_a1_{RANDOM}", owner)
    assert made.id == (await app.authenticate(made.key)).key_id


async def test_a_session_and_its_link_name_their_cell(app: App) -> None:
    link = await new_sign_in_link(app.services)
    secret = await sign_in_with_link(app.services, link, "test")

    assert re.fullmatch(rf"a1\.{RANDOM}", link)
    assert re.fullmatch(rf"a1\.{RANDOM}", secret)
    assert await signed_in(app.services, secret) is not None
    assert await signed_in(app.services, secret.removeprefix("a1.")) is None


async def test_keys_from_before_the_cell_had_a_name_still_work(app: App) -> None:
    before = in_cell(app, None)
    made = await call(before.context(OWNER), create_key, {"name": "x", "scopes": ["read"]})

    assert made.key is not None
    assert made.id == (await app.authenticate(made.key)).key_id


async def test_the_key_of_another_cell_is_refused_with_the_names_of_both(app: App) -> None:
    theirs = new_secret("b2")

    with pytest.raises(Unauthenticated, match="belongs to cell b2, and this is cell a1"):
        await app.authenticate(theirs)
    with pytest.raises(Unauthenticated, match="belongs to cell b2, and this server has no cell"):
        await in_cell(app, None).authenticate(theirs)
    with pytest.raises(Unauthenticated, match="unknown key"):
        await app.authenticate(new_secret("a1"))


def test_a_key_without_a_cell_is_not_taken_for_one_with_a_cell() -> None:
    """A random part may begin like the name of a cell."""
    assert [None] * 3 == [
        cell_of(f"pk_{rest}") for rest in ("a" * 43, "b_" + "a" * 41, "a_b_" * 10)
    ]
    assert ["x"] * 2 == [cell_of(secret) for secret in (new_secret("x"), new_token("x"))]
    assert "0123456789abcdef" == cell_of(new_secret("0123456789abcdef"))


@pytest.mark.parametrize("cell", ["a1", None])
@pytest.mark.parametrize("new", [new_secret, new_token])
def test_none_of_them_is_logged(new: Callable[[str | None], str], cell: str | None) -> None:
    secret = new(cell)

    assert secret[3:] not in _masked(f"GET /?key={secret} x")


@pytest.mark.parametrize("name", ["A", "a-b", "a_b", "a" * 17, "ä", "a b"])
def test_a_cell_name_that_cannot_be_part_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="POSTROOM_CELL: must be 1 to 16 of a-z and 0-9"):
        read_settings({"POSTROOM_CELL": name})
