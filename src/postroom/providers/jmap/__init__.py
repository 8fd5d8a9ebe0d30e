"""JMAP accounts (Fastmail, Cyrus): client, reader, provider and sender."""
