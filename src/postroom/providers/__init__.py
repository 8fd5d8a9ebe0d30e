"""Adapters to the world outside: each speaks one wire."""
