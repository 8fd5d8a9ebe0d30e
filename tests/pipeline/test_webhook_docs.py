"""The samples in the documentation of webhooks verify genuine deliveries and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING
from postroom.operations.mail.messages import list_messages
from postroom.pipeline.webhooks import payload, signed_headers
from postroom.surfaces.to_json import to_json
from tests.mails import deliver, mail

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "webhooks.md").read_text()
SECRET, OTHER = "whsec_" + "c2VjcmV0" * 4, "whsec_" + "b3RoZXIh" * 4
BODY = '{"type":"message.received","data":{"subject":"Grüße"}}'.encode()


def sample(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def in_python(secret: str, headers: dict[str, str], body: bytes) -> bool:
    names: dict[str, object] = {}
    exec(sample("python"), names)
    return bool(names["is_genuine"](secret, headers, body))  # type: ignore[operator]


def in_javascript(secret: str, headers: dict[str, str], body: bytes) -> bool:
    given = json.dumps([secret, headers, body.decode("latin-1")])
    program = f"""{sample("javascript")}
        const [secret, headers, body] = {given};
        process.exit(isGenuine(secret, headers, Buffer.from(body, "latin1")) ? 0 : 7);"""
    done = subprocess.run(["node", "-e", program], check=False, timeout=60)
    assert done.returncode in (0, 7)
    return done.returncode == 0


VERIFIERS = {"python": in_python, "javascript": in_javascript}


@pytest.mark.parametrize("language", VERIFIERS)
def test_the_sample_accepts_only_genuine_signatures(language: str) -> None:
    is_genuine, now = VERIFIERS[language], int(time.time())
    good = signed_headers("evt_1", now, BODY, [SECRET])
    both = signed_headers("evt_1", now, BODY, [OTHER, SECRET])
    old = signed_headers("evt_1", now - 400, BODY, [SECRET])

    assert is_genuine(SECRET, good, BODY)
    assert is_genuine(SECRET, both, BODY)
    for headers, body, secret in (
        (good, BODY + b" ", SECRET),
        (good, BODY, OTHER),
        ({**good, "webhook-id": "evt_2"}, BODY, SECRET),
        ({**good, "webhook-timestamp": str(now + 1)}, BODY, SECRET),
        ({**good, "webhook-signature": "v1,x"}, BODY, SECRET),
        (old, BODY, SECRET),
    ):
        assert not is_genuine(secret, headers, body)


async def test_the_documented_payload_is_the_real_one(ctx: RequestContext, inbox: Inbox) -> None:
    (written, *_) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    await deliver(ctx, inbox, mail("Hello"))
    [event] = (await ctx.store.events(EventQuery(visible=EVERYTHING))).rows
    rows = await call(ctx, list_messages, {"inbox_id": inbox.id})

    shown, ours = json.loads(written), json.loads(payload(event, rows.results[0]))

    assert shown.keys() == ours.keys()
    assert shown["data"].keys() == ours["data"].keys()
    assert to_json(rows.results[0]) == ours["data"]["message"]
    assert shown["data"]["message"].keys() <= ours["data"]["message"].keys()
