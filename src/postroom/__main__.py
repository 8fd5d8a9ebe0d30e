"""The entry of the program `postroom`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line."""
    gc.disable()  # until the program is loaded: imports create no garbage
    try:
        from postroom.surfaces.cli.program import main as run

        gc.enable()
        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
