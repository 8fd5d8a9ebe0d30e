"""Postings: which messages contain a string, by term and by token boundary."""
