"""The search index: which messages contain a string, exactly, at any size. See README.md.

`index` is the way in; everything else in this package is private to it.
"""
