"""What all operations share: requests, contexts, cursors, lookups, authentication, calling."""
