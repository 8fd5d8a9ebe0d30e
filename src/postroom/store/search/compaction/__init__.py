"""Compaction: merging the buffer and segments in the background."""
