"""The queries of the store, as functions on a transaction, for every database."""
