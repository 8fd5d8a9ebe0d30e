"""Postroom: the mail room for AI agents."""

__version__ = "0.1.0"
