"""From the fields of a request to options of the terminal, and back to arguments."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from postroom.errors import InvalidInput
from postroom.model.limits import Limits
from postroom.operations.request import Request
from postroom.surfaces.schema import Schema, field_schema

SHORTER = {
    "body_text": "--text",
    "body_html": "--html",
    "labels": "--label",
    "flags": "--flag",
    "scopes": "--scope",
    "inboxes": "--inbox",
    "message_ids": "--message-id",
    "thread_ids": "--thread-id",
    "namespaces": "--namespace",
    "tags": "--tag",
    "links": "--link",
}
"""Other names of options: lists are given by repeating, so one is named in the singular."""

FROM_FILE = {
    "body_text": "--text-file",
    "body_html": "--html-file",
    "text": "--text-file",
    "rule_yaml": "--file",
}
"""Arguments whose text may come from a file."""


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a request, as the terminal takes it."""

    name: str
    schema: Schema
    is_bytes: bool
    is_plain: bool

    @property
    def is_list(self) -> bool:
        return bool(self.schema.get("type") == "array")

    @property
    def is_enclosures(self) -> bool:
        return self.name == "attachments"

    @property
    def is_links(self) -> bool:
        return self.name == "links"

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def help(self) -> str:
        words = [self.schema.get("description", "")]
        choices = self.schema.get("items", self.schema).get("enum")
        if choices:
            words.append(f"One of {', '.join(choices)}.")
        if "default" in self.schema and self.schema.get("type") != "boolean":
            words.append(f"[default: {_shown(self.schema['default'])}]")
        return " ".join(words)

    def parameters(self) -> Iterator[click.Parameter]:
        """The options for it."""
        if self.is_enclosures:
            yield click.Option(["--attach"], multiple=True, metavar="FILE", help="A file to send.")
            yield click.Option(
                ["--attach-id"],
                multiple=True,
                metavar="ID",
                help="An attachment we hold, to send on.",
            )
            return
        yield self._option()
        if self.name in FROM_FILE:
            yield click.Option(
                [f"{self.name}_file", FROM_FILE[self.name]],
                metavar="FILE",
                help=f"Read {self.option} from a file; - is standard input.",
            )

    def _option(self) -> click.Option:
        if self.schema.get("type") == "boolean":
            spelling = f"{self.option}/--no-{self.option[2:]}"
            return click.Option([self.name, spelling], default=None, help=self.help)
        names = [self.name, self.option, *([SHORTER[self.name]] if self.name in SHORTER else [])]
        metavar = _METAVARS.get(self.schema.get("type", ""), "TEXT")
        metavar = "FILE" if self.is_bytes else "TYPE=TO" if self.is_links else metavar
        return click.Option(names, multiple=self.is_list, metavar=metavar, help=self.help)

    def given(self, values: Mapping[str, Any], alone: list[str], limits: Limits) -> Any:
        """What the caller gave for it; None if nothing. Takes what it needs from *alone*.

        Raises:
            InvalidInput: it is given twice, or its file cannot be read.
        """
        if self.is_enclosures:
            files = [_enclosure(path, limits) for path in values["attach"]]
            return files + [{"attachment_id": id_} for id_ in values["attach_id"]] or None
        value = self._written(values)
        if value in (None, ()) and self.is_plain and alone:
            value = tuple(alone) if self.is_list else alone[0]
            del alone[: len(alone) if self.is_list else 1]
        if self.is_bytes and value is not None:
            return read_file(value, limits.message_bytes)
        if self.is_links and value:
            return [_link(item) for item in value if item != ""]
        if self.is_list and value:
            return [item for item in value if item != ""]
        return None if value == () else value

    def _written(self, values: Mapping[str, Any]) -> Any:
        path = values.get(f"{self.name}_file")
        if path is None:
            return values[self.name]
        if values[self.name] is not None:
            raise InvalidInput(f"give {self.option} or {FROM_FILE[self.name]}, not both")
        return _text_of(path)


_METAVARS = {"integer": "NUMBER", "number": "NUMBER"}


def _link(written: str) -> dict[str, str]:
    """A link as the terminal takes it: `about=ana@example.com`."""
    kind, is_there, to = written.partition("=")
    if not is_there:
        raise InvalidInput(f"link: write {written} with its type, such as about={written}")
    return {"type": kind, "to": to}


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, list) else str(default)


def fields_of(model: type[Request], plain: tuple[str, ...]) -> list[Field]:
    """The fields of a request; those that may stand alone in the order of *plain*."""
    fields = [
        Field(
            name := info.alias or attribute,
            field_schema(info),
            info.annotation is bytes,
            name in plain,
        )
        for attribute, info in model.model_fields.items()
    ]
    order = {name: place for place, name in enumerate(plain)}
    return sorted(fields, key=lambda field: order.get(field.name, len(order)))


def parameters_of(fields: list[Field]) -> list[click.Parameter]:
    """What click is told: an option for each field, and that some may stand alone."""
    params = [param for field in fields for param in field.parameters()]
    plain = [field for field in fields if field.is_plain]
    if not plain:
        return params
    metavar = " ".join(f"[{f.name.upper()}]" + ("..." if f.is_list else "") for f in plain)
    return [click.Argument(["alone"], nargs=-1, required=False, metavar=metavar), *params]


def arguments_of(fields: list[Field], values: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The arguments of the operation. Raises InvalidInput."""
    alone = list(values.get("alone", ()))
    given = {field.name: field.given(values, alone, limits) for field in fields}
    if alone:
        raise InvalidInput(f"{alone[0]}: there is no argument left that this could be")
    return {name: value for name, value in given.items() if value is not None}


def read_file(path: str, most_bytes: int) -> bytes:
    """The content of a file, or of standard input for `-`.

    One byte over the limit is read at most: enough for the operation to refuse it.
    """
    if path == "-":
        return sys.stdin.buffer.read(most_bytes + 1)
    try:
        with open(path, "rb") as file:
            return file.read(most_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None


def _text_of(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return read_file(path, 20_000_000).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not text in UTF-8") from None


def _enclosure(path: str, limits: Limits) -> dict[str, str]:
    from mimetypes import guess_type

    content = read_file(path, limits.attachments_bytes)
    return {
        "filename": "attachment" if path == "-" else Path(path).name,
        "content_type": guess_type(path)[0] or "application/octet-stream",
        "content": b64encode(content).decode(),
    }
