"""Office Open XML packages: the parts of a ZIP file, read as XML within limits."""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Literal, NamedTuple
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

_MAX_UNPACKED_BYTES = 128 * 1024 * 1024
_MAX_DEPTH = 500
_CHUNK_BYTES = 65_536
Attributes = dict[str, str]


class XmlEvent(NamedTuple):
    """A tag that opens or closes, or text; names have no prefix."""

    kind: Literal["start", "end", "text"]
    name: str
    attributes: Attributes = {}


class Relationship(NamedTuple):
    """A part that another part refers to."""

    id: str
    kind: str
    target: str


@dataclass(slots=True)
class Package:
    """The parts of a file, unpacked up to a limit for all of them."""

    archive: ZipFile
    names: frozenset[str] = frozenset()
    unpacked_bytes: int = 0
    is_cut: bool = False
    """Whether the limit was reached, and parts were not read to their end."""

    def events(self, name: str) -> Iterator[XmlEvent]:
        """The XML of a part; nothing if the part does not exist. Raises ValueError."""
        if name not in self.names:
            return
        parser = _Parser()
        try:
            with self.archive.open(name) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    self.unpacked_bytes += len(chunk)
                    if self.unpacked_bytes > _MAX_UNPACKED_BYTES:
                        self.is_cut = True
                        return
                    yield from parser.feed(chunk)
        except (BadZipFile, zlib.error, EOFError, OSError) as error:
            raise ValueError(f"the file is damaged: {error}") from error
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(f"the file cannot be unpacked: {error}") from error
        except expat.ExpatError as error:
            raise ValueError(f"the file has invalid XML: {error}") from error

    def relationships(self, name: str) -> list[Relationship]:
        """The parts that a part refers to; "" is the package itself."""
        folder, base = posixpath.split(name)
        found = []
        for event in self.events(posixpath.join(folder, "_rels", f"{base}.rels")):
            if event.kind != "start" or event.name != "Relationship":
                continue
            given = event.attributes
            if given.get("TargetMode") != "External":
                target = given.get("Target", "")
                path = target if target.startswith("/") else f"/{folder}/{target}"
                kind = given.get("Type", "").rpartition("/")[2]
                target = posixpath.normpath(path).lstrip("/")
                found.append(Relationship(given.get("Id", ""), kind, target))
        return found

    def related(self, name: str, *kinds: str) -> list[str]:
        """The parts of some kinds, in the order of these kinds."""
        relations = self.relationships(name)
        return [r.target for kind in kinds for r in relations if r.kind == kind]


def open_package(data: bytes) -> Package:
    """Open a file. Raises ValueError."""
    try:
        archive = ZipFile(BytesIO(data))
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ValueError(f"the file is damaged: {error}") from error
    return Package(archive, frozenset(archive.namelist()))


@dataclass(slots=True)
class _Parser:
    """An XML parser that refuses document types, and with them all entities of a file's own."""

    found: list[XmlEvent] = field(default_factory=list)
    depth: int = 0
    parser: expat.XMLParserType = field(default_factory=expat.ParserCreate)

    def __post_init__(self) -> None:
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def feed(self, chunk: bytes) -> list[XmlEvent]:
        self.found = []
        self.parser.Parse(chunk, False)
        return self.found

    def _refuse(self, *_: object) -> None:
        raise ValueError("the file has a document type, which Office files never have")

    def _start(self, name: str, attributes: Attributes) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"the XML is nested more than {_MAX_DEPTH} levels deep")
        plain = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        # An element may have both r:id and id.
        plain |= {key: value for key, value in attributes.items() if ":" in key}
        self.found.append(XmlEvent("start", name.rpartition(":")[2], plain))

    def _end(self, name: str) -> None:
        self.depth -= 1
        self.found.append(XmlEvent("end", name.rpartition(":")[2]))

    def _text(self, text: str) -> None:
        self.found.append(XmlEvent("text", text))
