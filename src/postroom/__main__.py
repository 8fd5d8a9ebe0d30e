"""The entry of the program `postroom`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from postroom.surfaces.cli.program import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
