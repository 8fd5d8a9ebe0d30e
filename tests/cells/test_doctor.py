"""`postroom doctor` names the cell, and says whether the other cells receive mail."""

from __future__ import annotations

from pathlib import Path

from postroom.config import read_settings
from postroom.model.health import CheckResult
from postroom.surfaces.cli.commands.doctor import examine_network
from tests.servers.ports import free_port
from tests.servers.relay import relaying


async def finding(data: Path, **extra: str) -> CheckResult | None:
    own = {"POSTROOM_DATA_DIR": str(data), "POSTROOM_PORT": "0", "POSTROOM_SMTP_LISTEN": "none"}
    found = await examine_network(read_settings({**own, **extra}).settings)
    return next((one for one in found if one.check == "cell"), None)


async def test_doctor_names_the_cell_and_connects_to_the_others(tmp_path: Path) -> None:
    async with relaying() as other:
        relays = f"b.example={other.url}"
        fine = await finding(tmp_path, POSTROOM_CELL="a", POSTROOM_CELL_RELAYS=relays)
        relays += f",c.example=smtp://me:hush@127.0.0.1:{free_port()}?insecure=true"
        down = await finding(tmp_path, POSTROOM_CELL="a", POSTROOM_CELL_RELAYS=relays)

    assert fine is not None
    assert down is not None
    expected = f"a; mail to b.example: 127.0.0.1:{other.port} answers without TLS"
    assert ("ok", True) == (fine.status, fine.detail.startswith(expected))
    assert ("problem", True) == (down.status, "c.example" in down.detail)
    assert "hush" not in str(down)


async def test_doctor_omits_cells_without_cells(tmp_path: Path) -> None:
    assert await finding(tmp_path) is None
