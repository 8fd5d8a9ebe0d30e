"""Adapters to other systems: mail accounts, relays, inbound webhooks, embeddings, secrets."""
