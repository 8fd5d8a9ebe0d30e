"""Commands that are not bound to an operation."""
