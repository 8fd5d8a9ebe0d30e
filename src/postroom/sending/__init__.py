"""Sending: from an outgoing mail to a stored message with an outbox entry."""
