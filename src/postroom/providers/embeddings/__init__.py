"""Texts as vectors: a bundled model, an endpoint that others run, or none."""
