"""A demo inbox with a few conversations, received and sent through the real pipeline."""
