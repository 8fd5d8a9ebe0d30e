"""The entry of the program `postroom`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line."""
    gc.disable()  # until the program is loaded: imports create no garbage
    _open_closed_streams()
    try:
        from postroom.surfaces.cli.program import main as run

        gc.enable()
        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device in place of standard streams that the caller has closed.

    Otherwise the first files that are opened would get their descriptors.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
