"""Whether a container is well: a server says so itself, and anything else is while it runs.

python healthy.py [PID OF THE PROGRAM, 1 IN A CONTAINER]
"""

import os
import re
import sys
import urllib.request
from pathlib import Path

program = sys.argv[1] if sys.argv[1:] else "1"
words = Path(f"/proc/{program}/cmdline").read_bytes().decode(errors="replace").split("\0")
if "serve" in words:
    port = os.environ.get("POSTROOM_PORT", "8700")  # noqa: TID251 - no part of the program
    for given in re.findall(r"\n--port[=\n](\d+)", "\n".join(words)):
        port = given
    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=12)
