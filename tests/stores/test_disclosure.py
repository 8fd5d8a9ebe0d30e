"""Mail that discloses a memory about one person to another is detected."""

from __future__ import annotations

import pytest

from postroom.model.view import EVERYTHING, only
from postroom.store.store import Store
from tests.stores.memories import NOW, about, put

SECRET = "Ana's budget for the kitchen is forty thousand euros, and she will go to fifty."


@pytest.mark.parametrize(
    ("text", "recipients", "is_warned"),
    [
        (f"Hi Bo,\n{SECRET}\nBest", ["bo@x.org"], True),
        ("She will go to FIFTY for the kitchen: forty thousand euros, and she", ["bo@x.org"], True),
        (SECRET, ["ana@x.org"], False),
        (SECRET, ["ana@x.org", "bo@x.org"], True),
        ("Ana has a budget.", ["bo@x.org"], False),
        ("", ["bo@x.org"], False),
    ],
)
async def test_a_memory_about_one_person_sent_to_another_is_detected(
    store: Store, text: str, recipients: list[str], is_warned: bool
) -> None:
    await put(store, text=SECRET, links=about("Ana@x.org"))

    found = await store.tied_memories(text, recipients, EVERYTHING, visible=EVERYTHING, now=NOW)

    assert ([("k", ("ana@x.org",), ("bo@x.org",))] if is_warned else []) == [
        (tied.key, tied.about, tied.others) for tied in found
    ]
    assert [] == await store.tied_memories(
        text, recipients, only("elsewhere"), visible=EVERYTHING, now=NOW
    )


@pytest.mark.parametrize(
    ("memory", "sent", "is_warned"),
    [
        ("Door code 4471", "Hi Bo, the door code: 4471. Best", True),
        ("Door code 4471", "Hi Bo, the door code is 4471", False),
        ("Code 4471", "It is code 4471!", True),
        ("4471", "4471", False),
        (
            "filler " * 9_000 + "She will go to fifty thousand",
            "she will go to FIFTY thousand",
            True,
        ),
        ("She will go to fifty thousand", "word " * 15_000 + "she will go to fifty thousand", True),
    ],
)
async def test_short_and_long_memories_are_detected(
    store: Store, memory: str, sent: str, is_warned: bool
) -> None:
    await put(store, text=memory, links=about("ana@x.org"))

    found = await store.tied_memories(sent, ["bob@x.org"], EVERYTHING, visible=EVERYTHING, now=NOW)

    assert (["k"] if is_warned else []) == [tied.key for tied in found]


async def test_many_memories_of_the_recipient_do_not_hide_a_disclosure(store: Store) -> None:
    known = [f"Bob knows of the house by lake {number} in the north." for number in range(30)]
    for number, text in enumerate(known):
        await put(store, f"bob/{number}", text, links=about("bob@x.org"))
    await put(store, text="Door code 4471", links=about("ana@x.org"))

    found = await store.tied_memories(
        " ".join([*known, "Door code 4471"]),
        ["bob@x.org"],
        only("default"),
        visible=EVERYTHING,
        now=NOW,
    )

    assert ["k"] == [tied.key for tied in found]
