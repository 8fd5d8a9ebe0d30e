"""dkimpy, an independent implementation of DKIM; the Debian package, since there is no wheel."""

from __future__ import annotations

import sys

_PLACE = "/usr/lib/python3/dist-packages"

sys.path.append(_PLACE)
try:
    from dkim import sign, verify
finally:
    sys.path.remove(_PLACE)

__all__ = ["sign", "verify"]
