"""Settings: the command line, then the environment, then `postroom.toml`, then defaults.

This is the only package that sees the environment. A new setting is a field of `Settings` and a
line of `docs/reference/settings.md`.
"""

from postroom.config.loading import (
    ConfigError,
    Configuration,
    Value,
    environment_with,
    load,
    preference,
    read_settings,
)
from postroom.config.settings import DEFAULT_LISTEN, SETTINGS, Setting, Settings

__all__ = [
    "DEFAULT_LISTEN",
    "SETTINGS",
    "ConfigError",
    "Configuration",
    "Setting",
    "Settings",
    "Value",
    "environment_with",
    "load",
    "preference",
    "read_settings",
]
