"""How much is too much. Every number is a setting; the defaults stand here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024
KB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that doors and parsers check before they do any work."""

    message_bytes: int = 36 * MB
    attachments_bytes: int = 25 * MB
    attachments_count: int = 20
    header_bytes: int = 256 * KB
    header_count: int = 1_000
    mime_parts: int = 500
    mime_depth: int = 20
    header_addresses: int = 500
    filename_chars: int = 255
    html_bytes: int = 2 * MB
    recipients: int = 50
    request_bytes: int = 40 * MB
    text_chars: int = 1_048_576
    inline_bytes: int = 1 * MB
    requests_per_second: int = 500
    requests_burst: int = 2_000
    sends_per_hour: int = 1_000
    domain_sends_per_hour: int = 10_000
    smtp_per_minute: int = 60_000
    memory_bytes: int = 64 * KB
