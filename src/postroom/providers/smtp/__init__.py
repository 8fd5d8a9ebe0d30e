"""The SMTP relay and its URL."""
