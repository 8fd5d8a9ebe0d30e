"""What stands on a leaf: the words to index, and the text whose meaning counts."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.model.memory import summary_of
from postroom.store.sql.values import from_text
from postroom.store.transaction import Transaction

MAIL_CHARS = 20_000
"""How much of a mail is indexed by its words."""

_MEANING_CHARS = 2_000
"""A model reads no more than this of any text."""

OF_MEMORY = "SELECT key, summary, text, tags FROM memories WHERE number = :what"
OF_MESSAGE = """
    SELECT m.subject, m.from_name, coalesce(b.new_text, b.text)
      FROM messages m JOIN bodies b ON +b.inbox = +m.inbox AND b.message = m.number
     WHERE m.number = :what
"""


@dataclass(frozen=True, slots=True)
class LeafText:
    """The same text twice: for words, and for meaning."""

    words: str
    meaning: str


def text_of(tx: Transaction, kind: str, what: int) -> LeafText:
    """The text of a row; one that is gone has none."""
    row = tx.one(OF_MEMORY if kind == "memories" else OF_MESSAGE, what=what)
    if row is None:
        return LeafText("", "")
    if kind == "memories":
        return memory_text(row[0], row[1], row[2], from_text(row[3]))
    return message_text(*row)


def memory_text(key: str, summary: str | None, text: str, tags: list[str]) -> LeafText:
    """A memory: its key and tags are words like those of its text."""
    parts = [summary, text] if summary and summary != summary_of(text) else [text]
    meaning = "\n".join(parts)
    return LeafText("\n".join([key, *tags, meaning]), meaning[:_MEANING_CHARS])


def message_text(subject: str, sender: str, text: str) -> LeafText:
    """A mail: what it adds to its conversation, not what it quotes."""
    words = f"{subject}\n{sender}\n{text[:MAIL_CHARS]}"
    return LeafText(words, f"{subject}\n{text}"[:_MEANING_CHARS])
