"""The embedding model that comes with Postroom; `postroom.providers.embeddings` reads its files."""
