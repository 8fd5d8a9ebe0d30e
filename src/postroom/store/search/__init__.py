"""The search index: which messages contain a string, exactly, at any size.

Messages that were not indexed yet are the *tail*; a search looks through their text. All others
are in *segments*, which never change: each holds up to 65,536 messages, oldest first, and rows
that answer two questions without reading any text:

- `words`: which messages have a word that contains this? (the string has no border inside)
- `junctions`: where does a word that ends like this meet text that begins like that?

Labels, mailboxes and the like are sets of messages beside the segments, changed in place.
"""
