"""The documentation page of the Python client works as printed, from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.servers.postroom import Running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")


def test_the_samples_of_the_page_run_in_order(server: Running, tmp_path: Path):
    samples = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))

    done = subprocess.run(
        [sys.executable, "-c", samples.replace("http://127.0.0.1:8700", server.url)],
        env={**os.environ, "POSTROOM_KEY": server.key},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    for shown in ("delivered", "Good morning.", "Our offer None", "Net 30.", "481516", "not_found"):
        assert shown in done.stdout


def test_the_page_lists_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    assert set(extras) == set(re.findall(r"^\| `postroom\[(\w+)\]`", PAGE, re.MULTILINE))
