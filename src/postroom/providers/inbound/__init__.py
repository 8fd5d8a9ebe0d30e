"""Inbound webhooks: mail that providers received for us and post to us."""
