"""Requests with ids of another tenant, generated from the fields of each request class.

The kind of an argument is that of its example: `inb_…` is an inbox, `…@postroom.localhost` an
address. New operations are covered automatically, or a test fails because no request can be made.
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
from tests.isolation.tenants import SOUGHT, Tenant, rule_yaml
from tests.mails import mail

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
"""The kind of an id, by its prefix."""

NAMES = {
    "account_id": ("account", "live"),
    "destination_account_id": ("account", "live"),
    "accounts": ("account",),
    "namespace": ("namespace",),
    "namespaces": ("namespace",),
    "key": ("memory",),
    "linked_to": ("message",),
}
"""The kind of arguments that are no ids."""

NEW = {"email", "address", "username", "to", "cc", "bcc"}
"""Arguments that name external addresses, or objects that do not exist yet."""

PLAIN: Arguments = {"raw": mail("Intruder"), "headers": {}, "timeout_s": 1, "dry_run": False}
SEARCH_ARGUMENTS = {"q", "query", "keywords"}


@dataclass(frozen=True)
class RequestVariant:
    """Arguments, and the one that names a foreign object; None if all do, or none does."""

    arguments: Arguments
    about: str | None = None


def every_operation() -> dict[str, Operation[Any, Any]]:
    """All operations, on any surface."""
    found = {}
    for module in pkgutil.walk_packages(postroom.operations.__path__, "postroom.operations."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Operation):
                found[value.name] = value
    return found


@cache
def requests_of(operation: Operation[Any, Any], own: Tenant, other: Tenant) -> list[RequestVariant]:
    """Every valid request by which a caller could reach an object of the other tenant."""
    model = operation.request
    variants = {repr(one.arguments): one for one in _all(model, own, other)}.values()
    variants = [one for one in variants if _parses(model, one.arguments)]
    missing = set(_naming(model)) - {key for a in variants for key in a.arguments}
    assert variants, f"no request to {operation.name} can be made: give its fields examples"
    assert not missing, f"no request to {operation.name} has {missing}: give them examples"
    return variants


def _all(model: type[Request], own: Tenant, other: Tenant) -> Iterator[RequestVariant]:
    for base in _bases(model, other, other):
        yield RequestVariant(base, next(iter(base.keys() & _naming(model).keys()), None))
        for name in SEARCH_ARGUMENTS & set(_fields(model)):
            yield RequestVariant({**base, name: SOUGHT})
            if "mode" in _fields(model):
                yield RequestVariant({**base, name: SOUGHT, "mode": "hybrid"})
    if "rule_yaml" in _fields(model):
        yield from (
            RequestVariant({"rule_yaml": text, "dry_run": dry})
            for text in _rules(other)
            for dry in (True, False)
        )
    for name, info in _naming(model).items():
        for value in _values(name, info, own, other):
            for base in (_base_for(name, model, own, other), _base_for(name, model, other, other)):
                yield RequestVariant({**base, name: value}, name)
                # Alone, for arguments that replace each other, such as thread_id and in_reply_to.
                alone = {key: given for key, given in base.items() if key not in _naming(model)}
                yield RequestVariant({**alone, name: value}, name)


def _base_for(name: str, model: type[Request], own: Tenant, other: Tenant) -> Arguments:
    """A minimal request to which an argument can be added, if there is one."""
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
    """The minimal valid requests, whose required ids are those of *own*."""
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
    """For each argument the first request that names something by it, or the first request."""
    firsts = [next((b for b in bases if name in b), None) for name in sorted(naming)]
    found = {repr(base): base for base in firsts if base is not None}
    return list(found.values()) or bases[:1]


def _own(name: str, info: FieldInfo, own: Tenant, other: Tenant) -> Any:
    values = _values(name, info, own, own) if _kinds(name, info) else []
    return values[0] if values else PLAIN.get(name, (info.examples or [None])[0])


def _fields(model: type[Request]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _naming(model: type[Request]) -> dict[str, FieldInfo]:
    """The arguments that name an object."""
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
    """Values for an argument that name objects of the other tenant."""
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
