"""The space of each kind of data: `python -m bench.sizes FOLDER` or a PostgreSQL URL.

Counts the pages of each table with its indexes, in total and per message. FOLDER is a data folder
with a `postroom.db`; its blobs are counted too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

import apsw
import psycopg

from bench.search.measuring import table

MB = 1 << 20
IN_SQLITE = """
    SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat d
      LEFT JOIN sqlite_schema s ON s.name = d.name
     WHERE d.aggregate = TRUE GROUP BY 1
"""
IN_POSTGRES = """
    SELECT coalesce(p.relname, c.relname), sum(pg_total_relation_size(c.oid))::bigint
      FROM pg_class c
      LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
     WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY 1
"""
COUNT = "SELECT count(*), (SELECT count(*) FROM inboxes) FROM messages"
TEXT = "SELECT sum(octet_length(searchable)) FROM search_texts"


def kind_of(name: str) -> str:
    """The kind of data that a table belongs to."""
    if name in ("search_rows", "search_sets", "search_segments", "search_buffer"):
        return "search index"
    if name in ("bodies", "search_texts"):
        return "texts"
    return "events" if name == "events" else "other rows"


def in_sqlite(folder: Path) -> tuple[dict[str, int], tuple[int, int], int]:
    database = apsw.Connection(str(folder / "postroom.db"), flags=apsw.SQLITE_OPEN_READONLY)
    sizes = dict(database.execute(IN_SQLITE).fetchall())
    [counts], [(text,)] = database.execute(COUNT), database.execute(TEXT)
    return sizes, counts, text


def in_postgres(url: str) -> tuple[dict[str, int], tuple[int, int], int]:
    with psycopg.connect(url) as database:
        sizes = dict(database.execute(IN_POSTGRES).fetchall())
        [counts], [(text,)] = database.execute(COUNT), database.execute(TEXT)
    return {name: int(size) for name, size in sizes.items()}, counts, int(text)


def blob_bytes(folder: Path) -> int:
    """The disk space of blobs, in whole blocks."""
    files = (path for path in (folder / "blobs").glob("??/*"))
    return sum(os.stat(path).st_blocks * 512 for path in files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.sizes", description=__doc__)
    parser.add_argument("place", help="a folder with postroom.db, or postgresql://…")
    place: str = parser.parse_args().place
    is_url = "://" in place
    sizes, (messages, inboxes), text = in_postgres(place) if is_url else in_sqlite(Path(place))
    kinds = Counter[str]()
    for name, size in sizes.items():
        kinds[kind_of(name)] += size
    if not is_url:
        kinds["blobs"] = blob_bytes(Path(place))
    print(f"{messages} messages in {inboxes} inboxes, {text / messages:.0f} bytes of folded text\n")
    rows: list[list[object]] = [["what", "MB", "bytes per message"]]
    rows += [[n, f"{s / MB:.0f}", f"{s / messages:.0f}"] for n, s in kinds.most_common()]
    table(rows)
    print("\nThe largest tables, with their indexes:\n")
    largest = Counter(sizes).most_common(10)
    table([["table", "bytes per message"], *([n, f"{s / messages:.0f}"] for n, s in largest)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
