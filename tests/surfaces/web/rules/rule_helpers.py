"""Save a rule as the owner does on the command line."""

from __future__ import annotations

from postroom.calls.operation import call
from postroom.model.rule import Rule
from postroom.operations.rules import create_rule
from tests.surfaces.web.conftest import WebInstallation


async def saved(installation: WebInstallation, text: str) -> Rule:
    """The stored rule with this text."""
    made = await call(installation.owner, create_rule, {"rule_yaml": text, "dry_run": False})
    assert isinstance(made, Rule)
    return made
