"""Queries: scanning, searching segments and the buffer, paging."""
