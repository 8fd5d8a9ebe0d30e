"""What a person has set for all programs of a terminal: PAGER, EDITOR, NO_COLOR and so on."""

from __future__ import annotations

import os


def preference(*names: str) -> str | None:
    """The first of these variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), None)


def environment_with(**defaults: str) -> dict[str, str]:
    """The environment for a program of the terminal, with defaults for what is not set."""
    return {**defaults, **os.environ}
