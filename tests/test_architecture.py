"""The import contract of the architecture holds, and a violation is detected."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = Path(sys.executable).parent / "lint-imports"


def check_imports(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT, "--no-logo", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_imports_point_down_only():
    result = check_imports(ROOT)

    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("model/intruder.py", "import postroom.mail", "Imports point down only"),
        ("mail/intruder.py", "import starlette", "Inside there is no HTTP"),
        ("surfaces/intruder.py", "import postroom.store", "Only the app knows the adapters"),
        ("store/intruder.py", "import postroom.operations", "Adapters know the ports"),
        ("intruder/__init__.py", "", "Imports point down only"),
        ("surfaces/cli/intruder.py", "import postroom.surfaces.rest.intruder", "The command line"),
        ("surfaces/rest/intruder.py", "import postroom.surfaces.mcp", "Surfaces do not know"),
        (
            "pipeline/intruder.py",
            "import postroom.store.sql.credentials",
            "The store is used through",
        ),
        ("pipeline/intruder.py", "import postroom.store.sqlite", "Inside there is no HTTP"),
        ("store/intruder.py", "import postroom.store.search.query.scan", "The search index"),
        ("store/intruder.py", "import postroom.store.ranking.scoring", "The ranking index"),
    ],
)
def test_a_forbidden_import_is_detected(tmp_path, module, line, broken):
    services = tmp_path / "src" / "postroom"
    shutil.copytree(ROOT / "src" / "postroom", services)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for surface in ("cli", "rest", "mcp"):
        package = services / "surfaces" / surface
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        (package / "intruder.py").touch()
    (services / module).parent.mkdir(exist_ok=True)
    (services / module).write_text(f"{line}\n")

    result = check_imports(tmp_path)

    assert 1 == result.returncode
    assert any(broken in row and "BROKEN" in row for row in result.stdout.splitlines())
