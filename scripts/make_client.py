"""Write the typed part of the Python client from the routes table and the model.

    python scripts/make_client.py            writes src/postroom/client/{operations,values}/
    python scripts/make_client.py --check    fails if they are not current

A method of the client is an operation of the routes table: its arguments with their types, and its
description. A value is a dataclass of the model as it is answered. This script is not part of the
package.
"""

from __future__ import annotations

import keyword
import shutil
import subprocess
import sys
import tempfile
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from postroom.calls.operation import Operation
from postroom.calls.request import Request
from postroom.model.event import EventStream
from postroom.model.mail.message import Download
from postroom.model.page import is_page
from postroom.model.view import View
from postroom.surfaces.rest.openapi import TAGS
from postroom.surfaces.rest.routes import ROUTES, Route
from postroom.surfaces.to_json import public_fields

PACKAGE = Path(__file__).parents[1] / "src" / "postroom" / "client"
RUFF = Path(sys.prefix) / "bin" / "ruff"
WIDTH = 86
PAGED = ("limit", "offset", "cursor")
WIDER = {"to": "Addresses", "cc": "Addresses", "bcc": "Addresses", "reply_to": "Addresses",
         "attachments": "Files", "headers": "Mapping[str, str]"}  # fmt: skip
"""Lists for which the client accepts more types than the API."""

SUBJECTS = {
    "inboxes": ("inboxes", "policy", "mailboxes", "labels", "identities", "inbound", "ids",
                "threads", "attachments"),
    "messages": ("search", "messages"),
    "outgoing": ("drafts", "outbox"),
    "memories": ("memories",),
    "automation": ("rules", "plans", "events", "webhooks"),
    "administration": ("accounts", "capabilities", "keys", "audit"),
}  # fmt: skip
"""The modules of operations, each with the tags of its endpoints."""

VALUES = {
    "memories": ("memory", "mail.approval"),
    "mail": ("mail.message", "inbox", "page"),
    "records": ("mail.sending", "event", "account", "key", "rule"),
}
"""The modules of values, each with its modules of the model, in the order of imports."""

_PLAIN = {SecretStr: "str", datetime: "datetime | str", bytes: "bytes", Any: "Any"}
_EMPTY = {str: '""', int: "0", float: "0.0", bool: "False"}


class Names:
    """The shapes that are in use: values by their class, and requests inside requests."""

    def __init__(self) -> None:
        self.values: dict[type, str] = {}
        self.inputs: dict[type[Request], str] = {}

    def value(self, kind: Any) -> str:
        """A type of an answer, as source."""
        origin, args = get_origin(kind), get_args(kind)
        if kind == View:
            return "tuple[str, ...] | None"
        if is_page(kind):
            return f"Page[{self.value(args[0])}]"
        if origin in (Union, types.UnionType):
            return " | ".join(self.value(arg) for arg in args)
        if origin is Literal:
            return "str"
        if origin in (tuple, list):
            return f"tuple[{self.value(args[0])}, ...]"
        if origin is dict:
            return f"dict[str, {self.value(args[1])}]"
        if is_dataclass(kind):
            return self._shape(typing.cast(type, kind))
        return "None" if kind is type(None) else str(getattr(kind, "__name__", "Any"))

    def _shape(self, kind: type) -> str:
        if kind not in self.values and kind not in (EventStream, Download):
            self.values[kind] = kind.__name__
            hints = typing.get_type_hints(kind)
            for name, _ in public_fields(kind):
                self.value(hints[name])
        return kind.__name__

    def argument(self, annotation: Any) -> str:
        """A type of an argument, as source."""
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.argument(args[0])
        if origin in (Union, types.UnionType):
            return self.argument(next(arg for arg in args if arg is not type(None)))
        if origin is Literal:
            return f"Literal[{', '.join(map(repr, args))}]"
        if origin is list:
            return f"Sequence[{self.argument(args[0])}]"
        if origin is dict:
            return "Mapping[str, str]"
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return f"Literal[{', '.join(repr(item.value) for item in annotation)}]"
        if isinstance(annotation, type) and issubclass(annotation, Request):
            self.inputs.setdefault(annotation, annotation.__name__)
            return annotation.__name__
        return _PLAIN.get(annotation) or annotation.__name__


def arguments_of(operation: Operation[Any, Any]) -> dict[str, FieldInfo]:
    """The arguments by their names over REST, without second names for the same one."""
    infos = operation.request.model_fields.items()
    return {info.alias or name: info for name, info in infos if name != "same_as_q"}


def method(route: Route, names: Names) -> str:
    """One operation as a method."""
    operation = route.operation
    infos = arguments_of(operation)
    required = [n for n in route.path_arguments if n in infos]
    required += [n for n, info in infos.items() if info.is_required() and n not in required]
    optional = [name for name in infos if name not in required]
    patch = route.method == "PATCH"
    taken = [f"{safe(n)}: {_type(n, infos[n], names)}" for n in required]
    if len(taken) > 2 or optional:
        taken.insert(min(len(taken), 2), "*")
    taken += [_optional(n, infos[n], names, patch=patch, when=route.when) for n in optional]
    result = names.value(operation.result)
    options = ", raw=True" if route.raw else ""
    return "\n".join(
        (
            f'    @{_decorator(operation)}("{route.method}", "{route.path}"{options})',
            f"    def {operation.name}({', '.join(('self', *taken))}) -> {result}:",
            _docstring(operation, [*required, *optional], infos),
        )
    )


def _decorator(operation: Operation[Any, Any]) -> str:
    if operation.result is EventStream:
        return "stream"
    return "pages" if is_page(operation.result) else "operation"


def safe(name: str) -> str:
    """An argument or a field that is a Python keyword gets a trailing underscore."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _type(name: str, info: FieldInfo, names: Names) -> str:
    shown = names.argument(info.annotation)
    return WIDER.get(name, shown) if shown.startswith("Sequence[") else shown


def _optional(name: str, info: FieldInfo, names: Names, *, patch: bool, when: str | None) -> str:
    kind = _type(name, info, names)
    if name == when:
        return f"{safe(name)}: {kind} = {info.default!r}"
    if patch:
        return f"{safe(name)}: {kind} | UnsetType | None = UNSET"
    return f"{safe(name)}: {kind} | None = None"


def _docstring(
    operation: Operation[Any, Any], order: list[str], infos: dict[str, FieldInfo]
) -> str:
    first, _, rest = operation.description.partition(". ")
    if len(operation.description) <= WIDTH:
        first, rest = operation.description, ""
    lines = textwrap.wrap(first.removesuffix(".") + ".", WIDTH)
    if rest:
        lines += ["", *textwrap.wrap(rest, WIDTH)]
    told = {name: _description(infos[name]) for name in order}
    described = {name: said for name, said in told.items() if not _repeats_name(name, said)}
    if _is_paged(infos):
        described = {name: said for name, said in described.items() if name not in PAGED}
    if described:
        lines += ["", "Args:"]
    for name, said in described.items():
        line = f"{safe(name)}: {said}"
        lines += textwrap.wrap(line, WIDTH, initial_indent="    ", subsequent_indent="        ")
    text = "\n".join(lines)
    whole = f'"""{text}"""' if len(lines) == 1 else f'"""{text}\n"""'
    return textwrap.indent(whole.replace("\\", "\\\\"), " " * 8)


def _repeats_name(name: str, said: str) -> bool:
    """Whether a description says only what the name does: `message_id` is `The message.`"""
    return said == f"The {name.replace('_ids', 's').removesuffix('_id').replace('_', ' ')}."


def _is_paged(infos: dict[str, FieldInfo]) -> bool:
    return set(infos) >= set(PAGED)


def _description(info: FieldInfo) -> str:
    said = info.description or _inner_description(info.annotation) or "See the reference."
    default = info.default
    if info.is_required() or default in (None, [], "", False):
        return said
    shown = ", ".join(str(one) for one in default) if isinstance(default, list) else default
    return f"{said.removesuffix('.')} (default {shown})."


def _inner_description(annotation: Any) -> str | None:
    for part in get_args(annotation):
        for item in (part, *getattr(part, "__metadata__", ())):
            if isinstance(item, FieldInfo) and item.description:
                return item.description
    return None


def struct(kind: type, names: Names) -> str:
    """One shape of an answer as a class."""
    hints = typing.get_type_hints(kind)
    parent = next((base for base in kind.__mro__[1:] if base in names.values), None)
    inherited = {name for name, _ in public_fields(parent)} if parent else set()
    shown = [(name, hints[name]) for name, _ in public_fields(kind) if name not in inherited]
    plain = [(name.removesuffix("_"), hint) for name, hint in shown]
    renamed = {safe(name): name for name, _ in plain if keyword.iskeyword(name)}
    base = f"{parent.__name__ if parent else 'Value'}, frozen=True"
    base += f", rename={renamed!r}" if renamed else ""
    doc = textwrap.dedent("    " + (kind.__doc__ or "")).strip()
    text = textwrap.indent(f'"""{doc}"""' if "\n" not in doc else f'"""{doc}\n"""', "    ")
    fields = [f"    {safe(n)}: {names.value(h)} = {_absent(h, names)}" for n, h in plain]
    secrets = [f.name for f in fields_of(kind) if not f.repr and f.name in dict(plain)]
    hidden = [f"    SECRETS: ClassVar = frozenset({secrets!r})"] if secrets else []
    return "\n".join((f"class {kind.__name__}({base}):", text, "", *fields, *hidden))


def _absent(hint: Any, names: Names) -> str:
    """The value of a field that is missing in the response."""
    shown = names.value(hint)
    if shown.endswith("| None"):
        return "None"
    if shown.startswith("tuple["):
        return "()"
    if shown.startswith("dict["):
        return "field(default_factory=dict)"
    return '""' if shown == "str" else _EMPTY.get(hint, "ABSENT")


def typed_dict(kind: type[Request], names: Names) -> str:
    """One shape inside an argument."""
    fields = []
    for name, info in kind.model_fields.items():
        shown = names.argument(info.annotation)
        fields.append(
            (info.alias or name, shown if info.is_required() else f"NotRequired[{shown}]")
        )
    text = textwrap.indent(f'"""{textwrap.dedent(kind.__doc__ or "").strip()}"""', "    ")
    if not any(keyword.iskeyword(name) for name, _ in fields):
        lines = [f"    {name}: {shown}" for name, shown in fields]
        return "\n".join((f"class {kind.__name__}(TypedDict):", text, "", *lines))
    pairs = ", ".join(f'"{name}": {shown}' for name, shown in fields)
    doc = f'"""{" ".join((kind.__doc__ or "").split())}"""'
    return f'{kind.__name__} = TypedDict("{kind.__name__}", {{{pairs}}})\n{doc}'


def operations_module(subject: str, tags: tuple[str, ...], names: Names) -> str:
    """The methods of one subject as a module."""
    routes = [route for tag in tags for route in ROUTES if route.path.split("/")[2] == tag]
    methods = [method(route, names) for route in routes]
    about = " ".join(TAGS[tag].removesuffix(".") + "." for tag in tags)
    body = "\n\n".join(methods)
    imports = [
        "from collections.abc import Mapping, Sequence",
        "from datetime import datetime",
        "from typing import Any, Literal",
        "from msgspec import UNSET, UnsetType",
        "from postroom.client.events import EventStream",
        "from postroom.client.files import Download, Files",
        "from postroom.client.method import Addresses, operation, pages, stream",
        "from postroom.client.responses import Page",
        f"from postroom.client.values.inputs import {', '.join(sorted(names.inputs.values()))}"
        if names.inputs
        else "",
        *(
            f"from postroom.client.values.{module} import "
            + ", ".join(kind.__name__ for kind in _values_of(module, names))
            for module in VALUES
        ),
    ]
    lines = textwrap.wrap(about, WIDTH)
    doc = _one_line(about) if len(lines) == 1 else '"""{}\n"""'.format("\n".join(lines))
    heading = f"class {subject.title()}Operations:\n" + textwrap.indent(doc, "    ")
    title = _one_line(f"Operations: {subject}. Made by scripts/make_client.py.")
    return "\n".join((title, FUTURE, *imports, heading, "", body, ""))


def _one_line(text: str) -> str:
    return f'"""{text}"""'


FUTURE = "from __future__ import annotations\n"


def _values_of(module: str, names: Names) -> list[type]:
    sources = [f"postroom.model.{name}" for name in VALUES[module]]
    found = [kind for kind in names.values if kind.__module__ in sources]
    return sorted(found, key=lambda kind: kind.__name__)


def values_module(module: str, names: Names) -> str:
    """The shapes of answers from some modules of the model."""
    title = _one_line("Values that operations answer with. Made by scripts/make_client.py.")
    imports = [
        "from datetime import datetime",
        "from typing import Any, ClassVar",
        "from msgspec import field",
        "from postroom.client.responses import ABSENT, Value",
        *(
            f"from postroom.client.values.{earlier} import "
            + ", ".join(kind.__name__ for kind in _values_of(earlier, names))
            for earlier in list(VALUES)[: list(VALUES).index(module)]
        ),
    ]
    classes = [struct(kind, names) for kind in _values_of(module, names)]
    return "\n".join((title, FUTURE, *imports, "\n\n".join(classes), ""))


def inputs_module(names: Names) -> str:
    """The shapes inside arguments."""
    title = _one_line("Shapes inside arguments. Made by scripts/make_client.py.")
    imports = [
        "from collections.abc import Sequence",
        "from datetime import datetime",
        "from typing import Literal, NotRequired, TypedDict",
    ]
    classes = [typed_dict(kind, names) for kind in names.inputs]
    return "\n".join((title, FUTURE, *imports, "\n\n".join(classes), ""))


def modules() -> Iterator[tuple[str, str]]:
    """Every generated module with its text, not formatted yet."""
    names = Names()
    for route in ROUTES:
        method(route, names)
    placed = [kind for module in VALUES for kind in _values_of(module, names)]
    assert set(placed) == set(names.values), set(names.values) - set(placed)
    for subject, tags in SUBJECTS.items():
        yield f"operations/{subject}.py", operations_module(subject, tags, names)
    for module in VALUES:
        yield f"values/{module}.py", values_module(module, names)
    yield "values/inputs.py", inputs_module(names)
    for folder in ("operations", "values"):
        yield f"{folder}/__init__.py", ""


def render(folder: Path) -> None:
    """Write every module into a folder, formatted."""
    for name, text in modules():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    config = ["--config", str(PACKAGE.parents[2] / "pyproject.toml"), "--no-cache", "--quiet"]
    config += ["--config", "lint.isort.split-on-trailing-comma=false"]
    config += ["--config", "format.skip-magic-trailing-comma=true"]
    for command in (["check", "--select", "F401", "--fix"], ["check", "--select", "I", "--fix"]):
        subprocess.run([RUFF, *command, *config, folder], check=True)
    subprocess.run([RUFF, "format", *config, folder], check=True)


def differing(folder: Path) -> list[str]:
    """The modules that are not current."""
    made = {str(p.relative_to(folder)): p.read_text("utf-8") for p in folder.rglob("*.py")}
    stored = {
        str(path.relative_to(PACKAGE)): path.read_text("utf-8")
        for part in ("operations", "values")
        for path in (PACKAGE / part).glob("*.py")
    }
    return sorted(name for name in made | stored if made.get(name) != stored.get(name))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        render(folder)
        changed = differing(folder)
        if "--check" in sys.argv:
            sys.exit(f"not current: {', '.join(changed)}; run make client" if changed else 0)
        for part in ("operations", "values"):
            shutil.rmtree(PACKAGE / part, ignore_errors=True)
            shutil.copytree(folder / part, PACKAGE / part)
    print("\n".join(f"changed: {path}" for path in changed))


if __name__ == "__main__":
    main()
