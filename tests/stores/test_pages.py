"""Cursors and offsets give the same pages, from either end."""

from __future__ import annotations

import pytest

from postroom.model.page import Found, Slice
from postroom.pipeline.services import Services
from postroom.store.sql.statements import Conditions, Listing
from postroom.store.store import Store
from tests.mails import new_inbox


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_cursors_give_the_pages_of_offsets(
    store: Store, services: Services, is_newest_first: bool
) -> None:
    for name in "abcdefg":
        await new_inbox(services, name)
    listing = Listing("id, address", "inboxes", "number", is_newest_first)
    where = Conditions()
    where.add("address NOT LIKE :not_this", not_this="c@%")

    async def page(part: Slice) -> Found[str]:
        return await store.engine.read(lambda tx: listing.page(tx, where, part, lambda r: r[1][0]))

    by_offset = [await page(Slice(2, offset)) for offset in (0, 2, 4)]
    by_place = [await page(Slice(2))]
    while by_place[-1].next:
        by_place.append(await page(Slice(2, after=by_place[-1].next)))

    assert by_offset == by_place
    assert [6] * 3 == [part.total for part in by_place]
    first_letters = [outgoing_mail for part in by_place for outgoing_mail in part.rows]
    assert sorted("abdefg", reverse=is_newest_first) == first_letters
