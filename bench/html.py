"""The CPU time of converting HTML to text: `python -m bench.html FOLDER [--against SRC]`.

FOLDER has one mail per file; SRC is the `src` folder of another version, which is measured
alternately with this one. Prints the best of several rounds of each, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from postroom.mail.parse import parse_message

OWN = Path(__file__).parents[1] / "src"
TURNS = 4
_MEASURE = """
import json, sys, time
from postroom.mail.html.html import html_to_text
htmls = json.load(open(sys.argv[1]))
for html in htmls:
    html_to_text(html)
started = time.process_time()
for html in htmls:
    html_to_text(html)
print(time.process_time() - started)
"""


def htmls_in(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    parsed = (parse_message(path.read_bytes()) for path in files)
    return [mail.html for mail in parsed if mail.html]


def cpu_s(source: Path, htmls: str) -> float:
    """The CPU time of a version of the code, in a new process."""
    command = [sys.executable, "-c", _MEASURE, htmls]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return float(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description="measure how fast HTML becomes text")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    arguments = parser.parse_args()
    htmls = htmls_in(arguments.folder)
    sources = [OWN, *([arguments.against] if arguments.against else [])]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(htmls, file)
        file.flush()
        turns = [[cpu_s(source, file.name) for source in sources] for _ in range(TURNS)]
    best = [min(times) for times in zip(*turns, strict=True)]
    size = sum(map(len, htmls)) / 1e6
    print(f"{len(htmls)} HTML parts, {size:.1f} MB: {best[0] / len(htmls) * 1000:.2f} ms each")
    if arguments.against:
        print(f"{best[0] / best[1]:.2f} times the CPU of the other version")
    return 0


if __name__ == "__main__":
    sys.exit(main())
