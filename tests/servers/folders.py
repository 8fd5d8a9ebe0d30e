"""Folders for servers that drop root privileges."""

from __future__ import annotations

import tempfile
from pathlib import Path


def open_folder() -> Path:
    """A temporary folder that other users can traverse; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-"))
    folder.chmod(0o711)
    return folder
