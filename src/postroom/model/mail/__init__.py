"""Values of mail: stored, outgoing and held messages, and what the store is asked for them."""
