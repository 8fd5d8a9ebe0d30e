"""A client lists and searches the mail of several cells as one list."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from postroom.client import Postroom, merge_pages
from postroom.errors import MailError
from tests.servers.cells import Cell

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def clients(two_cells: list[Cell]) -> list[Postroom]:
    """A client of each cell, whose mails have dates between those of the others."""
    opened = [Postroom(f"http://{cell.address}", key=cell.key) for cell in two_cells]
    minutes = random.Random(4).sample(range(10_000), 30)
    for number, minute in enumerate(minutes):
        cell, client = two_cells[number % 3 == 0], opened[number % 3 == 0]
        date = format_datetime(START + timedelta(minutes=minute))
        raw = f"Subject: merged {minute}\r\nDate: {date}\r\n\r\nWords.\r\n"
        client.receive_message(f"bo@{cell.domain}", raw.encode())
    return opened


@pytest.mark.parametrize("sort", ["newest", "oldest"])
def test_a_search_over_cells_is_in_one_order_with_an_exact_total(
    clients: list[Postroom], sort: str
) -> None:
    found = merge_pages(
        clients,
        lambda cell: cell.search_messages(subject="merged", sort=sort, limit=4),
        oldest_first=sort == "oldest",
    )

    rows = [row for _, row in found]
    expected = sorted((row.date for row in rows), reverse=sort == "newest")
    assert (30, 30) == (found.total, len({row.id for row in rows}))
    assert expected == [row.date for row in rows]


def test_each_item_comes_with_the_client_of_its_cell(clients: list[Postroom]) -> None:
    found = merge_pages(clients, lambda cell: cell.search_messages(subject="merged", limit=100))

    for client, row in found:
        assert row.subject == client.get_message(row.id).subject
    assert {10, 20} == {page.total for page in found.pages}


def test_threads_are_merged_by_their_last_date(clients: list[Postroom]) -> None:
    found = merge_pages(clients, lambda cell: cell.list_threads(limit=7), order_by="last_date")

    dates = [thread.last_date for _, thread in found]
    assert dates == sorted(dates, reverse=True)
    assert found.total == len(dates)


def test_a_total_without_one_of_the_cells_is_an_error(clients: list[Postroom]) -> None:
    absent = Postroom("http://127.0.0.1:1", key="pk_c", retries=0)

    with pytest.raises(MailError, match=r"127\.0\.0\.1:1"):
        merge_pages([*clients, absent], lambda cell: cell.search_messages(subject="merged"))
