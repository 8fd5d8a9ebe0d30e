"""Admission control: rate limits, concurrency, fair queue, request bodies and their memory."""
