"""The number of modules and lines of the source, by folder and by feature.

    python -m bench.source_size

A feature is counted by the files that belong to it alone. Its parts of shared files, such as a
column in the store or an option of a command, are counted as the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

import postroom

SOURCE = Path(postroom.__file__).parent
FEATURES = {
    "web pages": ("surfaces/web/*", "mail/text/marks.py"),
    "Python client": ("client/*", "surfaces/rest/client.py"),
    "OAuth server": ("surfaces/oauth.py", "calls/oauth.py", "*/oauth_*.py"),
    "approval": ("approval.py", "*/approval.py", "*/approvals.py", "*/outbox/holds.py"),
    "toolset agent": ("operations/agent/*", "*/mcp/agent_tools.py", "model/agent.py"),
    "visibility of HTML": ("mail/html/*",),
    "text of attachments": ("mail/text_extraction/*",),
    "quotations and bounces": ("mail/quoting/*", "mail/bounces.py"),
    "terminal": ("*/cli/tables.py", "*/cli/lists.py", "*/cli/views.py",
                 "*/cli/editor.py", "*/cli/terminal.py",
                 "*/cli/backends.py"),
}  # fmt: skip
"""Features other than the mail engine, with the files that belong to them alone."""


def main() -> None:
    files = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines())
        for path in sorted(SOURCE.rglob("*.py"))
    }
    print(table("folder", files, folder))
    print()
    print(table("feature", files, feature))


def folder(path: str) -> str:
    """The folder of a file, two levels deep at most."""
    return "/".join(path.split("/")[:-1][:2]) or "."


def feature(path: str) -> str:
    """The feature that a file belongs to alone."""
    found = (
        name
        for name, patterns in FEATURES.items()
        if any(fnmatch(path, pattern) for pattern in patterns)
    )
    return next(found, "the rest")


def table(title: str, files: dict[str, int], group: Callable[[str], str]) -> str:
    """Modules and lines by group, as Markdown."""
    modules = Counter(group(path) for path in files)
    lines: Counter[str] = Counter()
    for path, count in files.items():
        lines[group(path)] += count
    rows = [(title, "modules", "lines"), ("---", "---:", "---:")]
    rows += [(name, str(modules[name]), f"{lines[name]:,}") for name in sorted(modules)]
    rows.append(("all", str(len(files)), f"{sum(files.values()):,}"))
    return "\n".join(_row(row) for row in rows)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
