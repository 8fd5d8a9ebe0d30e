"""The name of a house, which is another one in each copy of it."""

from __future__ import annotations

from postroom.store.transaction import Transaction

NAME = "SELECT value FROM facts WHERE name = 'house'"
PUT_NAME = """
    INSERT INTO facts (name, value) VALUES ('house', :value) ON CONFLICT (name) DO NOTHING
"""


def name_of(tx: Transaction) -> str | None:
    """The name; None if it has none yet."""
    row = tx.one(NAME)
    return bytes(row[0]).decode() if row else None


def name(tx: Transaction, new: str) -> str:
    """Give a house a name, unless another process was first; return the one it has."""
    tx.put(PUT_NAME, value=new.encode())
    found = name_of(tx)
    assert found is not None
    return found


def rename(tx: Transaction, new: str) -> None:
    """Give a house another name."""
    tx.run("DELETE FROM facts WHERE name = 'house'")
    tx.run(PUT_NAME, value=new.encode())
