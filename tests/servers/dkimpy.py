"""dkimpy, to sign and to check independently of us: Debian's, since it comes in no wheel."""

from __future__ import annotations

import sys

_PLACE = "/usr/lib/python3/dist-packages"

sys.path.append(_PLACE)
try:
    from dkim import sign, verify
finally:
    sys.path.remove(_PLACE)

__all__ = ["sign", "verify"]
