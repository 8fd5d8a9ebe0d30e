"""The wheel as its users get it: built from this tree, and unpacked beside it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def unpacked(folder: Path) -> Path:
    """Build the wheel, and unpack it where nothing of the source tree is found."""
    words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    [wheel] = (folder / "dist").glob("*.whl")
    installed = folder / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    return installed
