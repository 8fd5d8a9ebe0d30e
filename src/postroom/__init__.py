"""Postroom: a mail server for AI agents."""

__version__ = "0.1.0"
