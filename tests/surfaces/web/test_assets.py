"""Scripts and styles of the pages: what is vendored is what its authors published."""

from __future__ import annotations

import hashlib

from postroom.surfaces.web.rendering import asset

HTMX_4_0_0 = "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f"


def test_htmx_is_the_published_file() -> None:
    assert HTMX_4_0_0 == hashlib.sha256(asset("htmx.js")).hexdigest()
