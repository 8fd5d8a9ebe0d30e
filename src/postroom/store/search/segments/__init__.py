"""Segments: rows, sets of messages, building and verification."""
