"""Writing on shelves: leaves come and go, and get their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from postroom.model.memory import ShelfName, Unlearnt
from postroom.store.recall.texts import text_of
from postroom.store.sql.values import dumps
from postroom.store.transaction import Row, Transaction

TAIL_LEAVES = 1024
FEW_DEAD = 4096

FIND = "SELECT number FROM shelves WHERE kind = :kind AND name = :name"
MAKE = """
    INSERT INTO shelves (kind, name) VALUES (:kind, :name)
    ON CONFLICT (kind, name) DO NOTHING RETURNING number
"""
PUT = """
    INSERT INTO leaves (shelf, leaf, what, length, terms)
    SELECT :shelf, next_leaf, :what, :length, :terms FROM shelves WHERE number = :shelf
"""
COUNT_IN = """
    UPDATE shelves SET next_leaf = next_leaf + 1, leaves = leaves + 1, words = words + :length,
           tail = tail + 1, changes = changes + 1
     WHERE number = :shelf RETURNING tail
"""
DROP = """
    DELETE FROM leaves WHERE shelf = :shelf AND what = :what
    RETURNING leaf, length, CASE WHEN terms IS NULL THEN 0 ELSE 1 END
"""
COUNT_OUT = """
    UPDATE shelves SET leaves = leaves - 1, words = words - :length, tail = tail - :in_tail,
           dead = dead + 1, changes = changes + 1
     WHERE number = :shelf RETURNING leaves, dead
"""
UNLEARNT = """
    SELECT l.shelf, l.leaf, l.what, s.kind FROM leaves l JOIN shelves s ON s.number = l.shelf
     WHERE l.vector IS NULL AND {which} ORDER BY l.shelf DESC, l.leaf DESC LIMIT :limit
"""
_OF_SHELF = "l.shelf = (SELECT number FROM shelves WHERE kind = :kind AND name = :name)"
OF_OTHER_MODELS = f"""
    SELECT l.shelf, l.leaf, l.what, :kind FROM leaves l
     WHERE {_OF_SHELF} AND l.learnt IS NOT NULL AND (l.model < :model OR l.model > :model)
     LIMIT :limit
"""
COUNT_PENDING = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM leaves l WHERE {_OF_SHELF} AND l.vector IS NULL
     UNION ALL
        SELECT 1 FROM leaves l WHERE {_OF_SHELF} AND l.learnt IS NOT NULL AND l.model < :model
     UNION ALL
        SELECT 1 FROM leaves l WHERE {_OF_SHELF} AND l.learnt IS NOT NULL AND l.model > :model
     LIMIT :most) AS few
"""
LEARN = """
    UPDATE leaves SET vector = :vector, model = :model, learnt =
           (SELECT changes + 1 FROM shelves WHERE number = :shelf)
     WHERE shelf = :shelf AND leaf = :leaf
       AND (vector IS NULL OR model < :model OR model > :model)
"""


def find_shelf(tx: Transaction, shelf: ShelfName) -> int | None:
    """The number of a shelf, if it exists."""
    row = tx.one(FIND, kind=shelf[0], name=shelf[1])
    return int(row[0]) if row else None


def shelf_for(tx: Transaction, shelf: ShelfName) -> int:
    """The number of a shelf, which is made on first use."""
    kind, name = shelf
    row = tx.one(FIND, kind=kind, name=name) or tx.one(MAKE, kind=kind, name=name)
    return int(row[0]) if row else 0


def put_leaf(tx: Transaction, shelf: int, what: int, text: str) -> None:
    """Put a text on a shelf, in place of the one that stood there for the same row."""
    from postroom.mail.terms import count_terms

    drop_leaf(tx, shelf, what)
    add_leaf(tx, shelf, what, count_terms(text))


def add_leaf(tx: Transaction, shelf: int, what: int, counts: Counter[str]) -> None:
    """Put the words of a new text on a shelf."""
    length = counts.total()
    tx.run(PUT, shelf=shelf, what=what, length=length, terms=dumps(counts))
    row = tx.one(COUNT_IN, shelf=shelf, length=length)
    if row and row[0] >= TAIL_LEAVES:
        # numpy is slow to start; a process that writes a few memories does not need it.
        from postroom.store.recall.folding import fold_tail

        fold_tail(tx, shelf, TAIL_LEAVES)


def drop_leaf(tx: Transaction, shelf: int, what: int) -> None:
    """Take the text of a row off a shelf, if it is there."""
    row = tx.one(DROP, shelf=shelf, what=what)
    if row is None:
        return
    leaf, length, in_tail = row
    tx.run("INSERT INTO dead_leaves (shelf, leaf) VALUES (:shelf, :leaf)", shelf=shelf, leaf=leaf)
    counts = tx.one(COUNT_OUT, shelf=shelf, length=length, in_tail=in_tail)
    living, dead = counts or (0, 0)
    if dead > max(FEW_DEAD, living):
        from postroom.store.recall.folding import bury_dead

        bury_dead(tx, shelf)


def has_unlearnt(tx: Transaction) -> bool:
    """Whether any leaf has no vector yet."""
    return tx.one("SELECT 1 FROM leaves WHERE vector IS NULL LIMIT 1") is not None


def count_unlearnt(tx: Transaction, shelf: ShelfName, model: str, most: int) -> int:
    """How many leaves of a shelf have no vector of a model yet, counted up to a limit."""
    kind, name = shelf
    row = tx.one(COUNT_PENDING, kind=kind, name=name, model=model, most=most)
    return int(row[0]) if row else 0


def unlearnt(tx: Transaction, shelf: ShelfName | None, limit: int) -> list[Unlearnt]:
    """Leaves without a vector, of a shelf or of all, the newest of each first."""
    which, params = "l.shelf >= 0", {}
    if shelf is not None:
        which, params = "s.kind = :kind AND s.name = :name", {"kind": shelf[0], "name": shelf[1]}
    return _unlearnt(tx, tx.all(UNLEARNT.format(which=which), **params, limit=limit))


def learnt_by_others(tx: Transaction, shelf: ShelfName, model: str, limit: int) -> list[Unlearnt]:
    """Leaves of a shelf whose vector another model made: it says nothing to this one."""
    kind, name = shelf
    return _unlearnt(tx, tx.all(OF_OTHER_MODELS, kind=kind, name=name, model=model, limit=limit))


def _unlearnt(tx: Transaction, rows: Sequence[Row]) -> list[Unlearnt]:
    return [Unlearnt(row[0], row[1], text_of(tx, row[3], row[2]).meaning) for row in rows]


def learn(tx: Transaction, model: str, learnt: Sequence[tuple[Unlearnt, bytes]]) -> None:
    """Keep vectors; a leaf that died or was learnt meanwhile is passed over."""
    for leaf, vector in learnt:
        tx.run(LEARN, shelf=leaf.shelf, leaf=leaf.leaf, vector=vector, model=model)
    _changed(tx, {leaf.shelf for leaf, _ in learnt})


def shelves_of_other_models(tx: Transaction, model: str) -> list[int]:
    """The shelves that hold vectors of another model."""
    rows = tx.all(
        """SELECT number FROM shelves s WHERE EXISTS (
                SELECT 1 FROM leaves l WHERE l.shelf = s.number AND l.learnt IS NOT NULL
                   AND (l.model < :model OR l.model > :model))""",
        model=model,
    )
    return [row[0] for row in rows]


def forget_vectors(tx: Transaction, shelves: Sequence[int]) -> None:
    """Drop the vectors of some shelves: those of two models cannot be compared."""
    for shelf in shelves:
        tx.run(
            "UPDATE leaves SET vector = NULL, model = NULL, learnt = NULL WHERE shelf = :shelf",
            shelf=shelf,
        )
    _changed(tx, shelves)


def _changed(tx: Transaction, shelves: Iterable[int]) -> None:
    for shelf in shelves:
        tx.run("UPDATE shelves SET changes = changes + 1 WHERE number = :shelf", shelf=shelf)
