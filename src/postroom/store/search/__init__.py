"""The search index: which messages contain a string, exactly, at any size. See README.md.

`index` is the interface; everything else in this package is private to it.
"""
