"""IMAP: connections, commands, live sessions, and the provider for sync."""
