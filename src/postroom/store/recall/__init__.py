"""Texts that are found by their words and by their meaning: shelves of leaves.

A *shelf* is one collection that is searched as a whole: the memories of a namespace, or the mail.
A *leaf* is one text on it, under a number that never changes: a text that changes gets a new leaf.
The newest leaves carry their words with them and are the *tail*; every so often the tail is folded
into a *segment*, in which each word knows its leaves. Nothing that was folded is ever changed, so a
reader may keep what it has read; all it must ask is what came, what died and what was learnt.
"""
