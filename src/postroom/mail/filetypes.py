"""What a file is, by its first bytes."""

from __future__ import annotations

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"MZ", "application/x-msdownload"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"{\\rtf", "application/rtf"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftyp", "video/mp4"),
    (0, b"BEGIN:VCALENDAR", "text/calendar"),
    (0, b"BEGIN:VCARD", "text/vcard"),
    (0, b"-----BEGIN PGP M", "application/pgp-encrypted"),
    (0, b"-----BEGIN PGP S", "application/pgp-signature"),
    (0, b"-----BEGIN PGP P", "application/pgp-keys"),
    (0, b"\x78\x9f\x3e\x22", "application/ms-tnef"),
    (0, b"%!PS", "application/postscript"),
    (0, b"#!", "text/x-script"),
)
_OFFICE = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_HTML = (b"<!doctype html", b"<html", b"<script", b"<body", b"<head")
# Types that run or that a browser executes: a claim to be something else is a disguise.
_ACTIVE = frozenset(("application/x-msdownload", "application/x-elf", "text/html", "text/x-script"))
_VAGUE = frozenset(("application/octet-stream", "application/x-octet-stream", "text/plain", ""))


def detect_type(content: bytes, declared: str) -> str:
    """The type that the bytes give away, else the one declared."""
    head = content[:16]
    for offset, magic, found in _MAGIC:
        if head[offset : offset + 16].startswith(magic[: 16 - offset]) and content.startswith(
            magic, offset
        ):
            return _office(content) if found == "application/zip" else found
    start = content[:64].lstrip().lower()
    if start.startswith(_HTML):
        return "text/html"
    return declared or "application/octet-stream"


def _office(content: bytes) -> str:
    names = content[:4_096]
    for folder, found in _OFFICE.items():
        if folder in names:
            return found
    return "application/zip"


def is_disguised(declared: str, detected: str) -> bool:
    """True if something active came under a harmless name."""
    if detected == declared or detected not in _ACTIVE:
        return False
    if detected == "text/html":
        return declared.startswith(("image/", "audio/", "video/", "application/pdf"))
    return declared not in _VAGUE and not declared.startswith(("application/x-", "text/x-"))
