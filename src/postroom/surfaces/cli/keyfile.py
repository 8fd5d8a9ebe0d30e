"""The owner's key in a file that only the owner can read; the demo keeps it there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.operations.keys import OWNER_KEY_ID, new_secret

if TYPE_CHECKING:
    from postroom.app import App

NAME = "owner.key"


def read_key(data_dir: Path) -> str | None:
    """The key in the file, if there is one."""
    try:
        return (data_dir / NAME).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None


def keep_key(data_dir: Path, key: str) -> None:
    """Write the key, in one step, where only the owner can read it."""
    part = data_dir / f".{NAME}.{os.getpid()}"
    with open(part, "w", encoding="ascii", opener=_private) as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, data_dir / NAME)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def demo_key(app: App) -> str | None:
    """The owner's key of the demo, the same at every start.

    A key that was made outside of the demo is left alone, and is not known here.
    """
    if app.settings.api_key is not None:
        return await app.owner_key()
    key = read_key(app.settings.data_dir)
    if key is None:
        if await app.house.store.has_key(OWNER_KEY_ID):
            return None
        key = new_secret()
        keep_key(app.settings.data_dir, key)
    with_key = replace(app, settings=replace(app.settings, api_key=key))
    await with_key.owner_key()
    return key
