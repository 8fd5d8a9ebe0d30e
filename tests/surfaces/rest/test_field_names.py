"""The path of an invalid value in a list has one form, whatever detects it."""

from __future__ import annotations

import pytest

GOOD = {"filename": "a.txt", "content": "SGk="}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"attachments": [GOOD, {**GOOD, "filename": 7}]}, "attachments[1].filename"),
        ({"attachments": [GOOD, {**GOOD, "colour": "red"}]}, "attachments[1].colour"),
        ({"attachments": [GOOD, {**GOOD, "content": "?"}]}, "attachments[1]"),
        ({"attachments": [GOOD, 7]}, "attachments[1]"),
        ({"to": ["ana@example.com", 7]}, "to[1]"),
    ],
)
async def test_the_place_of_a_bad_value(rest, inbox, body, field):
    mail = {"inbox_id": inbox.id, "to": ["ana@example.com"], "subject": "Hi", "body_text": "Hi"}

    problem = await rest.problem("POST", "/v1/messages", json={**mail, **body})

    assert [field] == [error["field"] for error in problem["errors"]]
    assert problem["detail"].startswith(field)
