"""`postroom doctor` names the cell, and says whether the others receive mail."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.servers.ports import free_port
from tests.servers.postroom import command, environment, running


def finding(data: Path, **extra: str) -> dict[str, str]:
    done = subprocess.run(
        command("-o", "json", "doctor"),
        env=environment(data, {"POSTROOM_PORT": "0", **extra}),
        capture_output=True,
        check=False,
    )
    found: list[dict[str, str]] = json.loads(done.stdout)["checks"]
    return next((one for one in found if one["check"] == "cell"), {})


def test_the_doctor_tells_the_cell_and_connects_to_the_others(tmp_path: Path) -> None:
    smtp, nobody = free_port(), free_port()
    with running(tmp_path / "b", POSTROOM_SMTP_LISTEN=f"127.0.0.1:{smtp}"):
        relays = f"b.example=smtp://127.0.0.1:{smtp}"
        fine = finding(tmp_path / "a", POSTROOM_CELL="a", POSTROOM_CELL_RELAYS=relays)
        relays += f",c.example=smtp://me:hush@127.0.0.1:{nobody}?insecure=true"
        down = finding(tmp_path / "a", POSTROOM_CELL="a", POSTROOM_CELL_RELAYS=relays)

    assert "ok" == fine["status"]
    assert f"a; mail to b.example: 127.0.0.1:{smtp} answers without TLS" in fine["detail"]
    assert ("problem", True) == (down["status"], "c.example" in down["detail"])
    assert "hush" not in json.dumps(down)
    assert {} == finding(tmp_path / "a")
