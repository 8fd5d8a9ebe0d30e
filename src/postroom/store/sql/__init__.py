"""What the store does, as plain functions on a transaction: the same for every database."""
