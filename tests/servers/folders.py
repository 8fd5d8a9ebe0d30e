"""Folders for servers that give up root."""

from __future__ import annotations

import tempfile
from pathlib import Path


def open_folder() -> Path:
    """A temporary folder that other users may pass through; those of pytest are for us alone."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-"))
    folder.chmod(0o711)
    return folder
