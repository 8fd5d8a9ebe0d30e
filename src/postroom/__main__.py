"""The entry of the program `postroom`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from postroom.surfaces.cli.program import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
