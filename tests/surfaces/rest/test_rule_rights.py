"""A limited key gains nothing from rules that it lacks itself."""

from __future__ import annotations

import json

import pytest

from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import rest_client

RULE = "name: r\nwhen: [{{size_bytes: {{greater_than: 0}}}}]\nthen: [{then}]\n"
REMEMBERS = RULE.format(then="{remember: {key: k, text: t}}")


async def ask(rest, method, path, **body):
    answer = await rest.client.request(
        method, path, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    return answer.status_code, answer.json() if answer.content else None


async def key_with(rest, **limits):
    scopes = ["read", "write", "send", "admin"]
    _, key = await ask(rest, "POST", "/v1/keys", name="k", scopes=scopes, **limits)
    return key["key"]


async def test_a_key_of_another_namespace_cannot_plan_apply_or_enable(app, ctx, rest, inbox):
    await deliver(ctx, inbox, mail())
    key = await key_with(rest, namespaces=["other"])
    _, rule = await ask(rest, "POST", "/v1/rules", rule_yaml=REMEMBERS, dry_run=False)
    _, plan = await ask(rest, "POST", "/v1/rules", rule_yaml=REMEMBERS)

    async with rest_client(app, key) as limited:
        answers = [
            await ask(limited, "POST", "/v1/rules", rule_yaml=REMEMBERS),
            await ask(limited, "POST", "/v1/rules", rule_yaml=REMEMBERS, dry_run=False),
            await ask(limited, "POST", f"/v1/rules/{rule['id']}/plan"),
            await ask(limited, "POST", f"/v1/plans/{plan['plan_id']}/apply"),
            await ask(limited, "PATCH", f"/v1/rules/{rule['id']}", enabled=True),
            await ask(limited, "PATCH", f"/v1/rules/{rule['id']}", position=1),
        ]

    assert [403] * 6 == [status for status, _ in answers]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_foreign_webhook_is_reported_as_missing(app, rest, inbox, dry_run):
    _, other = await ask(rest, "POST", "/v1/inboxes", username="other")
    url = "https://example.com/hook"
    _, hook = await ask(rest, "POST", "/v1/webhooks", url=url, inboxes=[other["id"]])

    async with rest_client(app, await key_with(rest, inboxes=[inbox.id])) as limited:
        answers = []
        for hook_id in (hook["id"], "whk_none"):
            text = RULE.format(then=f"{{webhook: {hook_id}}}")
            status, said = await ask(limited, "POST", "/v1/rules", rule_yaml=text, dry_run=dry_run)
            answers.append((status, said["detail"].replace(hook_id, "it")))

    assert 404 == answers[0][0]
    assert answers[0] == answers[1]
