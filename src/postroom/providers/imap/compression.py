"""COMPRESS=DEFLATE (RFC 4978), with no more unpacked at once than can be handled."""

from __future__ import annotations

import zlib

from postroom.providers.imap.faults import Unreadable

_UNPACKED_BYTES = 256 * 1024


class Compression:
    """Packs what goes out and unpacks what comes in."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(wbits=-15)
        self._unpacker = zlib.decompressobj(-15)

    def pack(self, data: bytes) -> bytes:
        return self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> bytes:
        """The next stretch of what was packed; with b"" what is left of it. Raises Unreadable."""
        rest = self._unpacker.unconsumed_tail
        try:
            return self._unpacker.decompress(rest + data, _UNPACKED_BYTES)
        except zlib.error as error:
            raise Unreadable("what came is not compressed as agreed") from error
