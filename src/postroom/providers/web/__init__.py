"""HTTP APIs of providers: requests, rate limits, responses, and shared sync code."""
