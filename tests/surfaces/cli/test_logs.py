"""What the program logs has bounds, whatever it tells of."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from postroom.surfaces.cli.program import start_logging

def first(levels): second(levels - 1)
def second(levels): first(levels - 1) if levels > 0 else 1 / 0

start_logging()
try:
    first(400)
except ZeroDivisionError as error:
    logging.getLogger("x").error("a.b", exc_info=error, extra={"said": "y" * 99_999})
try:
    raise ValueError("z" * 99_999)
except ValueError as error:
    logging.getLogger("x").error("short", exc_info=error)
"""


def test_a_long_traceback_is_logged_without_its_middle():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True
    )

    assert len(ran.stderr.splitlines()) < 80
    assert "Traceback (most recent call last)" in ran.stderr
    assert "lines left out" in ran.stderr
    assert "ZeroDivisionError: division by zero" in ran.stderr
    assert max(map(len, ran.stderr.splitlines())) < 3_000
