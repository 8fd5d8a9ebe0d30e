"""Approval: policies, and the rules by which outgoing mail is held for a person."""
