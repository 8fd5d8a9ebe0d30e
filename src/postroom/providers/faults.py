"""Why a connection failed, in words for whoever has to mend it."""

from __future__ import annotations

import os
import socket
import ssl


def why(error: BaseException) -> str:
    """What is wrong, without the words of the libraries in between."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate does not verify: {cause.verify_message}"
    if isinstance(cause, socket.gaierror):
        return "there is no such host"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    return str(error) or "it ended the connection"
