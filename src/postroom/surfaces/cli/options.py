"""Options of commands, the completion of their values, and binding a command to an operation."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from postroom.calls.request import Request, argument_fields
from postroom.errors import InvalidInput
from postroom.model.limits import Limits
from postroom.surfaces.cli.command_table import OperationCommand, operation_at
from postroom.surfaces.cli.exit_codes import in_cli_words
from postroom.surfaces.cli.output import perform
from postroom.surfaces.cli.session import Session
from postroom.surfaces.schema import Schema, field_schema

if TYPE_CHECKING:
    from postroom.surfaces.cli.backends import Backend

SHORTER = {
    "body_text": "--text",
    "body_html": "--html",
    "labels": "--label",
    "flags": "--flag",
    "scopes": "--scope",
    "inboxes": "--inbox",
    "key_id": "--key",
    "message_ids": "--message-id",
    "thread_ids": "--thread-id",
    "namespaces": "--namespace",
    "tags": "--tag",
    "links": "--link",
    "headers": "--header",
    "expires_at": "--expires",
}
"""Option names that differ: options of lists are repeated, so they are singular."""

FROM_FILE = {
    "body_text": "--text-file",
    "body_html": "--html-file",
    "text": "--text-file",
    "rule_yaml": "--file",
}
"""Arguments whose value may come from a file."""


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a request as a command line option."""

    name: str
    schema: Schema
    is_bytes: bool
    is_plain: bool

    @property
    def is_list(self) -> bool:
        return bool(self.schema.get("type") == "array")

    @property
    def is_object(self) -> bool:
        return bool(self.schema.get("type") == "object")

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def choices(self) -> list[str]:
        found: list[str] = self.schema.get("items", self.schema).get("enum", [])
        return found

    @property
    def complete(self) -> Complete | None:
        """What completes its values in a shell."""
        return files if self.is_bytes else completes(self.name, self.choices)

    @property
    def spelling(self) -> str:
        """The option to name in a message."""
        return "--attach" if self.name == "attachments" else SHORTER.get(self.name, self.option)

    @property
    def help(self) -> str:
        words = [self.schema.get("description", "")]
        if self.choices:
            words.append(f"One of {', '.join(self.choices)}.")
        if "default" in self.schema and self.schema.get("type") != "boolean":
            words.append(f"[default: {_default_text(self.schema['default'])}]")
        return " ".join(words)

    def parameters(self) -> Iterator[click.Parameter]:
        """The options for it."""
        if self.name == "attachments":
            words = "A file to send."
            yield click.Option(
                ["--attach"], multiple=True, metavar="FILE", help=words, shell_complete=files
            )
            words = "The id of a stored attachment to send."
            yield click.Option(["--attach-id"], multiple=True, metavar="ID", help=words)
            return
        yield self._option()
        if self.name in FROM_FILE:
            yield click.Option(
                [f"{self.name}_file", FROM_FILE[self.name]],
                metavar="FILE",
                help=f"Read {self.option} from a file; - is standard input.",
                shell_complete=files,
            )

    def _option(self) -> click.Option:
        if self.schema.get("type") == "boolean":
            spelling = f"{self.option}/--no-{self.option[2:]}"
            return click.Option([self.name, spelling], default=None, help=self.help)
        names = [self.name, self.option, *([SHORTER[self.name]] if self.name in SHORTER else [])]
        metavar = _METAVARS.get(self.schema.get("type", ""), "TEXT")
        metavar = "FILE" if self.is_bytes else _PAIRS.get(self.name, metavar)
        return click.Option(
            names,
            multiple=self.is_list or self.is_object,
            metavar=metavar,
            help=self.help,
            shell_complete=self.complete,
        )

    def given(self, values: Mapping[str, Any], alone: list[str], limits: Limits) -> Any:
        """The value that was given, or None. Takes positional values from *alone*.

        Raises:
            InvalidInput: it is given twice, or its file cannot be read.
        """
        if self.name == "attachments":
            files = [_attachment_input(path, limits) for path in values["attach"]]
            return files + [{"attachment_id": id_} for id_ in values["attach_id"]] or None
        value = self._written(values)
        if value in (None, ()) and self.is_plain and alone:
            value = tuple(alone) if self.is_list else alone[0]
            del alone[: len(alone) if self.is_list else 1]
        if self.is_bytes and value is not None:
            return read_file(value, limits.message_bytes)
        if self.is_object and value:
            return _object(value, self.option, self.schema)
        if not self.is_list or not value:
            return None if value == () else value
        items = [item for item in value if item != ""]
        return [_link(item) for item in items] if self.name == "links" else items

    def _written(self, values: Mapping[str, Any]) -> Any:
        path = values.get(f"{self.name}_file")
        if path is None:
            return values[self.name]
        if values[self.name] is not None:
            raise InvalidInput(f"give {self.option} or {FROM_FILE[self.name]}, not both")
        return _text_of(path)


_PAIRS = {"links": "TYPE=TO", "headers": "NAME:VALUE", "filter": "NAME=VALUE"}
_METAVARS = {"integer": "NUMBER", "number": "NUMBER"}


def _link(written: str) -> dict[str, str]:
    """A link as the command line accepts it: `about=ana@example.com`."""
    kind, is_there, to = written.partition("=")
    if not is_there:
        raise InvalidInput(f"link: add a type to {written}, such as about={written}")
    return {"type": kind, "to": to}


def _object(written: tuple[str, ...], option: str, schema: Schema) -> dict[str, Any]:
    """An object as the command line accepts it: `from=@news.example`, repeated for each member."""
    found: dict[str, Any] = {}
    for pair in written:
        name, is_there, value = pair.partition("=")
        if not is_there:
            raise InvalidInput(f"{option}: write NAME=VALUE, such as from=ana@example.com")
        is_list = schema.get("properties", {}).get(name, {}).get("type") == "array"
        found[name] = [*found.get(name, ()), value] if is_list else value
    return found


def _default_text(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, list) else str(default)


def fields_of(model: type[Request], plain: tuple[str, ...]) -> list[Field]:
    """The fields of a request; positional ones in the order of *plain*."""
    fields = [
        Field(name, field_schema(info), info.annotation is bytes, name in plain)
        for name, info in argument_fields(model).items()
    ]
    order = {name: place for place, name in enumerate(plain)}
    return sorted(fields, key=lambda field: order.get(field.name, len(order)))


def parameters_of(fields: list[Field]) -> list[click.Parameter]:
    """The parameters for click: an option per field, and positional arguments."""
    params = [param for field in fields for param in field.parameters()]
    plain = [field for field in fields if field.is_plain]
    if not plain:
        return params
    metavar = " ".join(f"[{f.name.upper()}]" + ("..." if f.is_list else "") for f in plain)

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        """Complete the argument at this position, unless its option was given."""
        left = [f for f in plain if not ctx.params.get(f.name)]
        at = min(len(ctx.params.get("alone") or ()), len(left) - 1)
        found = left[at].complete if left else None
        return found(ctx, param, begun) if found else []

    alone = click.Argument(
        ["alone"], nargs=-1, required=False, metavar=metavar, shell_complete=complete
    )
    return [alone, *params]


def spellings(fields: list[Field]) -> dict[str, str]:
    """The option for each argument, and for the ids of attachments."""
    found = {field.name: field.spelling for field in fields}
    return {"attachment_id": "--attach-id", **found} if "attachments" in found else found


def arguments_of(fields: list[Field], values: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The arguments of the operation. Raises InvalidInput."""
    alone = list(values.get("alone", ()))
    given = {field.name: field.given(values, alone, limits) for field in fields}
    if alone:
        raise InvalidInput(f"{alone[0]}: unexpected argument")
    return {name: value for name, value in given.items() if value is not None}


def read_file(path: str, most_bytes: int) -> bytes:
    """The content of a file, or of standard input for `-`.

    At most one byte over the limit is read, which is enough to refuse it.
    """
    if path == "-":
        return sys.stdin.buffer.read(most_bytes + 1)
    try:
        with open(path, "rb") as file:
            return file.read(most_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None


def _text_of(path: str) -> str:
    try:
        return read_file(path, 20_000_000).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not UTF-8 text; convert it to UTF-8") from None


def _attachment_input(path: str, limits: Limits) -> dict[str, str]:
    from mimetypes import guess_type

    content = read_file(path, limits.attachments_bytes)
    return {
        "filename": "attachment" if path == "-" else Path(path).name,
        "content_type": guess_type(path)[0] or "application/octet-stream",
        "content": b64encode(content).decode(),
    }


def bind(row: OperationCommand, name: str) -> click.Command:
    """Make the command of a row."""
    operation = operation_at(row.operation)
    unseen = {*dict(row.pin), *row.hide}
    fields = [f for f in fields_of(operation.request, row.plain) if f.name not in unseen]
    params = parameters_of(fields)
    if row.saves_to is not None:
        default = "" if row.saves_to else "  [default: its file name, in the current folder]"
        words = f"The file to write; - is standard output.{default}"
        names = ["--to", "save_to"]
        params.append(click.Option(names, metavar="FILE", default=row.saves_to, help=words))

    @click.pass_obj
    def run(session: Session, /, **values: Any) -> int:
        session.options = spellings(fields)
        arguments = arguments_of(fields, values, session.limits) | dict(row.pin)
        save_to = values.get("save_to") or ""
        return perform(session, operation, arguments, save_to, creates=row.creates_store)

    options = spellings(fields)
    for param in params:
        # The help of a rule lists words of the rule language, which are not arguments.
        if isinstance(param, click.Option) and param.help and param.name != "rule_yaml":
            param.help = in_cli_words(param.help, options)
    words = in_cli_words(row.help or operation.description, options)
    return click.Command(name, params=params, callback=run, help=words)


Row = dict[str, Any]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_PATIENCE_S = 3.0

SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "account_id": ("accounts.list_accounts", "id", ("address",)),
    "accounts": ("accounts.list_accounts", "id", ("address",)),
    "attachment_id": ("mail.attachments.list_attachments", "id", ("filename",)),
    "attach_id": ("mail.attachments.list_attachments", "id", ("filename",)),
    "destination": ("mail.message_changes.list_mailboxes", "name", ()),
    "draft_id": ("outgoing.drafts.list_drafts", "id", ("subject",)),
    "identity_id": ("outgoing.identities.list_identities", "id", ("email",)),
    "inbox": ("inboxes.list_inboxes", "address", ("name",)),
    "inbox_id": ("inboxes.list_inboxes", "address", ("name",)),
    "inboxes": ("inboxes.list_inboxes", "address", ("name",)),
    "in_reply_to": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "key_id": ("keys.list_keys", "id", ("name",)),
    "label": ("mail.message_changes.list_labels", "name", ()),
    "labels": ("mail.message_changes.list_labels", "name", ()),
    "add_labels": ("mail.message_changes.list_labels", "name", ()),
    "remove_labels": ("mail.message_changes.list_labels", "name", ()),
    "mailbox": ("mail.message_changes.list_mailboxes", "name", ()),
    "message_id": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "message_ids": ("mail.messages.search_messages", "id", ("from_name", "subject")),
    "recipient": ("inboxes.list_inboxes", "address", ("name",)),
    "rule_id": ("rules.list_rules", "id", ("name",)),
    "thread_id": ("mail.threads.list_threads", "id", ("subject",)),
    "thread_ids": ("mail.threads.list_threads", "id", ("subject",)),
    "webhook_id": ("webhooks.list_webhooks", "id", ("url",)),
}
"""For each argument: the list that has its values, the field of the value, and what explains it."""

_EVERYWHERE = {"mailbox": "*", "limit": 50}


def files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(begun, type="file")]


def completes(name: str, choices: Sequence[str] = ()) -> Complete | None:
    """The completer of an argument's values; None if there is none."""
    if choices:
        return lambda ctx, param, begun: [
            CompletionItem(one) for one in choices if one.startswith(begun)
        ]
    if name not in SOURCES:
        return None
    return lambda ctx, param, begun: stored(ctx.find_object(Session), name, begun)


def stored(session: Session | None, name: str, begun: str) -> list[CompletionItem]:
    """Values that are stored, newest first.

    Errors are ignored, because a completion must not disturb typing.
    """
    if session is None:
        return []
    try:
        with redirect_stderr(StringIO()):
            if session.server is None and not session.is_there:
                return []
            rows = session.perform(lambda at: asyncio.wait_for(_rows(at, name), _PATIENCE_S))
    except Exception:  # noqa: BLE001  whatever it is, the command itself will tell
        return []
    _, field, about = SOURCES[name]
    values = {row[field]: _explained(row, about) for row in rows}
    return [
        CompletionItem(value, help=words)
        for value, words in values.items()
        if value.startswith(begun) or value.partition("_")[2].startswith(begun)
    ]


def _explained(row: Row, about: tuple[str, ...]) -> str:
    from postroom.surfaces.cli.terminal import cell

    return cell(" · ".join(str(row[name]) for name in about if row.get(name)))[:60]


async def _rows(backend: Backend, name: str) -> list[Row]:
    import_path = SOURCES[name][0]
    arguments = _EVERYWHERE if import_path == "mail.messages.search_messages" else {}
    if import_path != "mail.attachments.list_attachments":
        return list((await backend.body(operation_at(import_path), arguments))["results"])
    found = await backend.body(operation_at(SOURCES["inbox_id"][0]), {})
    rows: list[Row] = []
    for inbox in found["results"][:5]:
        page = await backend.body(operation_at(import_path), {"inbox_id": inbox["id"], "limit": 20})
        rows += page["results"]
    return rows


def attach(params: Sequence[click.Parameter]) -> None:
    """Let options and arguments complete their values by their names."""
    for param in params:
        found = completes(param.name or "")
        # click takes it at construction only
        if found is not None and param._custom_shell_complete is None:  # noqa: SLF001
            param._custom_shell_complete = found  # noqa: SLF001
