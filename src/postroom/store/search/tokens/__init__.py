"""Tokens: boundaries, tokenizer and term dictionary."""
