"""The health of an installation: what checks have found, queues, sizes and processes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A warning or problem has a fix."""

    check: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    fix: str = ""


def ok(check: str, detail: str) -> Finding:
    """There is nothing to do."""
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, fix: str) -> Finding:
    """It works, but not as it should."""
    return Finding(check, "warning", detail, fix)


def problem(check: str, detail: str, fix: str) -> Finding:
    """Something does not work."""
    return Finding(check, "problem", detail, fix)


@dataclass(frozen=True, slots=True)
class QueueLength:
    """How much waits in a queue; `is_more` if counting stopped there."""

    name: str
    waiting: int
    is_more: bool = False


@dataclass(frozen=True, slots=True)
class StorageSizes:
    """How large the installation is; `blob_bytes` is an estimate, and None where it has none."""

    database: str
    database_bytes: int
    index_bytes: int
    messages: int
    blob_bytes: int | None = None
    blob_place: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a process to do a piece of work until a time."""

    name: str
    holder: str
    until: datetime


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How often something failed since the server started."""

    name: str
    count: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Load:
    """What waits, what fails, and how much space is left."""

    queues: tuple[QueueLength, ...]
    failures: tuple[FailureCount, ...]
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """The findings of all checks, and what the running server knows of itself."""

    version: str
    python: str
    started_at: datetime
    findings: tuple[Finding, ...]
    sizes: StorageSizes
    load: Load
    leases: tuple[Lease, ...]
