"""What a limit for a whole mail means for the files in it."""

from __future__ import annotations


def attachment_mb(mail_bytes: int) -> int:
    """How many MB of files fit into a mail of this size: base64 makes four bytes of three."""
    return max(mail_bytes * 3 // 4 // 2**20, 1)
