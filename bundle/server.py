"""The entry point of the bundle: the toolset `agent` on stdio."""

from __future__ import annotations

import sys

from postroom.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["mcp", "--toolsets", "agent"]
    main()
