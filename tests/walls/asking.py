"""Requests that name what is somebody else's, made from the fields of each request class.

An argument names a thing if its example does: `inb_…` an inbox, `…@postroom.localhost` an address.
An operation that is added later is asked by itself, or a test says that nobody can ask it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from pydantic.fields import FieldInfo

import postroom.operations
from postroom.calls.context import parse_request
from postroom.calls.operation import Operation
from postroom.calls.request import Request
from postroom.errors import InvalidInput
from tests.mails import mail
from tests.walls.tenants import SOUGHT, Tenant, rule_yaml

Arguments = dict[str, Any]
PREFIXES = {
    "inb": ("inbox", "address"),
    "msg": ("message", "waiting"),
    "thr": ("thread", "other_thread"),
    "att": ("attachment",),
    "drf": ("draft",),
    "rul": ("rule",),
    "pln": ("plan",),
    "whk": ("webhook",),
    "dlv": ("delivery",),
    "key": ("key",),
    "idn": ("identity",),
    "evt": ("event",),
}
"""What an id names, by its beginning."""

NAMES = {
    "account_id": ("account", "live"),
    "destination_account_id": ("account", "live"),
    "accounts": ("account",),
    "namespace": ("namespace",),
    "namespaces": ("namespace",),
    "key": ("memory",),
    "linked_to": ("message",),
}
"""What an argument names that has no id."""

NEW = {"email", "address", "username", "to", "cc", "bcc"}
"""Arguments that name somebody outside, or what is yet to be made."""

PLAIN: Arguments = {"raw": mail("Intruder"), "headers": {}, "timeout_s": 1, "dry_run": False}
SEEKING = {"q", "query", "keywords"}


@dataclass(frozen=True)
class Asked:
    """Arguments, and which of them names what is somebody else's; None if all do, or nothing."""

    arguments: Arguments
    about: str | None = None


def every_operation() -> dict[str, Operation[Any, Any]]:
    """All there are, whoever binds them."""
    found = {}
    for module in pkgutil.walk_packages(postroom.operations.__path__, "postroom.operations."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Operation):
                found[value.name] = value
    return found


@cache
def requests_of(operation: Operation[Any, Any], own: Tenant, other: Tenant) -> list[Asked]:
    """Everything by which a caller could reach what is the other's, in requests that are valid."""
    model = operation.request
    asked = {repr(one.arguments): one for one in _all(model, own, other)}.values()
    asked = [one for one in asked if _parses(model, one.arguments)]
    unasked = set(_naming(model)) - {key for a in asked for key in a.arguments}
    assert asked, f"no request to {operation.name} can be made: give its fields examples"
    assert not unasked, f"no request to {operation.name} has {unasked}: give them examples"
    return asked


def _all(model: type[Request], own: Tenant, other: Tenant) -> Iterator[Asked]:
    for base in _bases(model, other, other):
        yield Asked(base, next(iter(base.keys() & _naming(model).keys()), None))
        for name in SEEKING & set(_fields(model)):
            yield Asked({**base, name: SOUGHT})
            if "mode" in _fields(model):
                yield Asked({**base, name: SOUGHT, "mode": "hybrid"})
    if "rule_yaml" in _fields(model):
        yield from (
            Asked({"rule_yaml": text, "dry_run": dry})
            for text in _rules(other)
            for dry in (True, False)
        )
    for name, info in _naming(model).items():
        for value in _values(name, info, own, other):
            for base in (_base_for(name, model, own, other), _base_for(name, model, other, other)):
                yield Asked({**base, name: value}, name)
                # One that stands in for another, such as thread_id for in_reply_to.
                alone = {key: given for key, given in base.items() if key not in _naming(model)}
                yield Asked({**alone, name: value}, name)


def _base_for(name: str, model: type[Request], own: Tenant, other: Tenant) -> Arguments:
    """A request to which an argument can be added, if there is one."""
    bases = _bases(model, own, other)
    return next((base for base in bases if name in base), bases[0] if bases else {})


def _rules(other: Tenant) -> Iterator[str]:
    webhook = f"webhook: {other.webhook}"
    plain = ("delete", "flag", "forward: x@example.com", "reply: Hello", "apply_label: X")
    for action in (*plain, webhook, "remember: {key: k, text: Taken}"):
        then = f"{{{action}}}" if ":" in action else action
        yield rule_yaml("Taken", then)
        yield rule_yaml("Taken", then, inbox=other.inbox)
        yield rule_yaml("Taken", then, account=other.account)


def _bases(model: type[Request], own: Tenant, other: Tenant) -> list[Arguments]:
    """The least that makes a request, in which what must be named is *own*."""
    fields = _fields(model)
    least = {
        name: _own(name, info, own, other) for name, info in fields.items() if info.is_required()
    }
    least |= {name: PLAIN[name] for name in ("timeout_s",) if name in fields}
    if _parses(model, least):
        return [least]
    rest = {
        name: _own(name, info, own, other) for name, info in fields.items() if name not in least
    }
    bases: list[Arguments] = []
    for count in (1, 2, 3):
        unnamed = set(_naming(model)) - set().union(*bases)
        more = (least | dict(some) for some in combinations(rest.items(), count))
        found = [b for b in more if (not bases or unnamed & set(b)) and _parses(model, b)]
        bases += found if count == 1 else _one_for_each(found, unnamed)
    return bases


def _one_for_each(bases: list[Arguments], naming: set[str]) -> list[Arguments]:
    """The first of the requests that names something by each argument, or the first of all."""
    firsts = [next((b for b in bases if name in b), None) for name in sorted(naming)]
    found = {repr(base): base for base in firsts if base is not None}
    return list(found.values()) or bases[:1]


def _own(name: str, info: FieldInfo, own: Tenant, other: Tenant) -> Any:
    values = _values(name, info, own, own) if _kinds(name, info) else []
    return values[0] if values else PLAIN.get(name, (info.examples or [None])[0])


def _fields(model: type[Request]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _naming(model: type[Request]) -> dict[str, FieldInfo]:
    """The arguments that name a thing."""
    return {name: info for name, info in _fields(model).items() if _kinds(name, info)}


def _kinds(name: str, info: FieldInfo) -> tuple[str, ...]:
    if name in NEW or not info.examples:
        return ()
    if name in NAMES:
        return NAMES[name]
    text = str(info.examples[0])
    if text.endswith("@postroom.localhost"):
        return ("address",)
    if "imap:" in text:
        return ("live",)
    if "attachment_id" in text:
        return ("attachment",)
    if name == "links":
        return ("message",)
    return next((kinds for start, kinds in PREFIXES.items() if f"{start}_" in text), ())


def _values(name: str, info: FieldInfo, own: Tenant, other: Tenant) -> list[Any]:
    """What to give for an argument so that it names things of the other."""
    (example,) = info.examples or [None]
    named = [getattr(other, kind) for kind in _kinds(name, info)]
    if name == "links":
        return [[{"type": "about", "to": one}] for one in named]
    if isinstance(example, list) and isinstance(example[0], dict):
        return [[{"attachment_id": one}] for one in named]
    if isinstance(example, list) and len(example) > 1:
        return [named[:2], [own.thread, named[0]]]
    if isinstance(example, list):
        return [[one] for one in named]
    if "imap:" in str(example):
        return [f"imap:{one}:INBOX:1700000000:42" for one in named]
    return named


def _parses(model: type[Request], arguments: Arguments) -> bool:
    try:
        parse_request(model, arguments)
    except InvalidInput:
        return False
    return True
