"""Files: attachments to send, from paths and bytes, and downloads."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from postroom.client.values.mail import Attachment
from postroom.errors import InvalidInput

File = str | os.PathLike[str] | Attachment | Mapping[str, str]
"""A path, an attachment of a message that is here already, or what `file` returns."""

Files = Sequence[File]
_ANY = "application/octet-stream"


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes with their name and type. The name was chosen by the sender: do not trust it."""

    content: bytes
    filename: str
    content_type: str

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bytes to a file; in a folder, under the last part of the attachment's name."""
        target = Path(path)
        if target.is_dir():
            target /= Path(self.filename.replace("\\", "/")).name or "attachment"
        target.write_bytes(self.content)
        return target


def file(
    content: bytes | str | os.PathLike[str],
    *,
    filename: str | None = None,
    content_type: str | None = None,
) -> dict[str, str]:
    """A file to send, from bytes or a path.

    Raises:
        InvalidInput: the path cannot be read, or bytes have no filename.
    """
    data = content if isinstance(content, bytes) else _read(Path(content))
    name = filename or ("" if isinstance(content, bytes) else Path(content).name)
    if not name:
        raise InvalidInput("attachments: bytes need a filename")
    return {
        "filename": name,
        "content_type": content_type or mimetypes.guess_type(name)[0] or _ANY,
        "content": base64.b64encode(data).decode(),
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"attachments: cannot read {path} ({error.strerror}); give the path of a file, an "
            "Attachment, or the result of postroom.client.file"
        ) from error


def as_inputs(files: Any) -> list[Any]:
    """Attachments in the form that the server accepts."""
    given = [files] if isinstance(files, (str, os.PathLike, Mapping, Attachment)) else files
    return [_as_input(one) for one in given]


def _as_input(one: Any) -> Any:
    if isinstance(one, Attachment):
        return {"attachment_id": one.id}
    return file(one) if isinstance(one, (str, os.PathLike)) else one
