"""What `doctor` found."""

from __future__ import annotations

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
