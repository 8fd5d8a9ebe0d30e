"""A desktop keyring on its own session bus: GNOME's, unlocked, in a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unlocked_keyring(folder: Path) -> Iterator[dict[str, str]]:
    """Start a session bus and its keyring; yields the environment of their users."""
    folder.mkdir(mode=0o700, exist_ok=True)
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert bus.stdout is not None
        address = bus.stdout.readline().strip()
        own = {
            "DBUS_SESSION_BUS_ADDRESS": address,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_RUNTIME_DIR": str(folder),
        }
        with _daemon(own):
            yield own
    finally:
        bus.terminate()
        bus.wait(120)


@contextmanager
def _daemon(own: dict[str, str]) -> Iterator[None]:
    daemon = subprocess.Popen(
        ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        daemon.stdin.write(b"the password of the desktop")
        daemon.stdin.close()
        daemon.stdout.readline()
        yield
    finally:
        daemon.terminate()
        daemon.wait(120)
