"""The pages of rules over HTTP: order, switches, conflicts, limits of keys, hostile text."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from postroom.calls.operation import call
from postroom.model.rule import Rule
from postroom.operations import rules
from postroom.operations.keys import create_key, delete_key
from postroom.rules.parser import parse_rule
from postroom.surfaces.web.rule_templates import TEMPLATES
from tests.surfaces.web.conftest import WebInstallation, WebUser, words
from tests.surfaces.web.mail.conftest import IncomingMail, incoming
from tests.surfaces.web.rules.rule_helpers import saved

__all__ = ["incoming"]

TEXT = "name: {name}\nwhen: [{{subject: {{contains: invoice}}}}]\nthen: [mark_read]\n"
HOSTILE = '"</textarea><script>alert(1)</script>"'


def text_of(name: str = "Bills") -> str:
    return TEXT.format(name=name)


async def names(installation: WebInstallation) -> list[str]:
    return [r.name for r in (await call(installation.owner, rules.list_rules, {})).results]


def version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def get(installation: WebInstallation, rule_id: str) -> Rule:
    return await call(installation.owner, rules.get_rule, {"rule_id": rule_id})


@pytest.mark.parametrize("name", TEMPLATES)
async def test_every_template_is_a_rule_without_warnings(owner: WebUser, name: str) -> None:
    parse_rule(TEMPLATES[name].yaml)

    assert "No problems." in words(await owner.read(f"/rules/new?template={name}"))


async def test_rules_are_moved_and_switched(installation: WebInstallation, owner: WebUser) -> None:
    first, second, third = [
        await saved(installation, text_of(name)) for name in ("one", "two", "three")
    ]
    await call(installation.owner, rules.delete_rule, {"rule_id": second.id})
    assert words(await owner.read("/rules")).index("one") > 0

    await owner.post(f"/rules/{third.id}/move", position="1")
    await owner.post(f"/rules/{first.id}/switch", enabled="no")

    assert ["three", "one"] == await names(installation)
    assert 'aria-checked="false"' in await owner.read("/rules")
    assert not (await get(installation, first.id)).enabled


@pytest.mark.parametrize("position", ["", "0", "x", "99999", "²", "-1"])
async def test_an_invalid_position_moves_nothing(
    installation: WebInstallation, owner: WebUser, position: str
) -> None:
    made = await saved(installation, text_of())

    response = await owner.post(f"/rules/{made.id}/move", position=position)

    assert response.status_code in (400, 422)


async def test_a_rule_changed_by_another_user_is_not_overwritten(
    installation: WebInstallation, owner: WebUser
) -> None:
    made = await saved(installation, text_of())
    seen = version(made.yaml)
    theirs, mine = text_of("Theirs"), text_of("Mine")
    await owner.post(f"/rules/{made.id}", do="save", rule_yaml=theirs, sha256=seen)

    refused = await owner.post(f"/rules/{made.id}", do="save", rule_yaml=mine, sha256=seen)

    assert 409 == refused.status_code
    assert "name: Theirs" in refused.text
    assert "name: Mine" in refused.text
    assert theirs == (await get(installation, made.id)).yaml
    again = await owner.post(
        f"/rules/{made.id}", do="save", rule_yaml=mine, sha256=seen, replace=version(theirs)
    )
    assert 303 == again.status_code
    assert mine == (await get(installation, made.id)).yaml


async def test_the_input_for_a_deleted_rule_is_kept(
    installation: WebInstallation, owner: WebUser
) -> None:
    made = await saved(installation, text_of())
    await owner.post(f"/rules/{made.id}/delete")

    response = await owner.post(
        f"/rules/{made.id}", do="save", rule_yaml=text_of("Mine"), sha256=version(made.yaml)
    )

    assert 404 == response.status_code
    assert "name: Mine" in response.text
    assert 'action="/rules/new"' in response.text


async def test_a_stale_plan_is_explained_and_can_be_made_again(
    installation: WebInstallation, owner: WebUser, incoming: IncomingMail
) -> None:
    message = await incoming.arrive("Invoice 7")
    planned = await owner.post("/rules/new", do="plan", rule_yaml=text_of())
    plan_id = planned.text.partition("/rules/plans/")[2].partition("/")[0]
    await owner.post("/mail", id=message, do="flag")

    stale = await owner.post(f"/rules/plans/{plan_id}/apply", rule_yaml=text_of())

    assert 409 == stale.status_code
    assert "changed since the plan was made" in words(stale.text)
    assert "Plan again" in words(stale.text)
    again = await owner.post("/rules/new", do="plan", rule_yaml=text_of())
    assert "Apply to 1 message" in words(again.text)


async def test_a_user_who_only_reads_can_view_and_not_change_rules(
    installation: WebInstallation, anonymous: WebUser, incoming: IncomingMail
) -> None:
    await incoming.arrive("Invoice 7")
    made = await saved(installation, text_of())
    await anonymous.sign_in(key=await installation.key("read"))

    pages = [await anonymous.read(path) for path in ("/rules", f"/rules/{made.id}", "/rules/runs")]
    answers = [
        await anonymous.post(f"/rules/{made.id}/switch", enabled="no"),
        await anonymous.post(f"/rules/{made.id}/move", position="1"),
        await anonymous.post(f"/rules/{made.id}/delete"),
        await anonymous.post("/rules/new", do="save", rule_yaml=text_of()),
        await anonymous.post("/rules/new", do="plan", rule_yaml=text_of()),
        await anonymous.post(
            f"/rules/{made.id}", do="save", rule_yaml=text_of("x"), sha256=version(made.yaml)
        ),
    ]

    assert all("Bills" in page for page in pages)
    changing = ("/switch", "/delete", 'value="save"', 'value="plan"')
    assert not any(word in page for page in pages for word in changing)
    assert [403] * 6 == [answer.status_code for answer in answers]
    assert [made.name] == await names(installation)


async def test_a_limited_key_sees_its_own_rules_only(
    installation: WebInstallation, anonymous: WebUser, incoming: IncomingMail
) -> None:
    inbox_id = await installation.new_inbox("other")
    await incoming.arrive("Invoice 7")
    secret = await saved(installation, text_of("Secret"))
    plan = await call(installation.owner, rules.run_rule_plan, {"rule_id": secret.id})
    await call(installation.owner, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    await anonymous.sign_in(key=await installation.key("read", "write", inboxes=[inbox_id]))

    made = await anonymous.post("/rules/new", do="save", rule_yaml=text_of("Mine"))
    seen = words(await anonymous.read("/rules")) + words(await anonymous.read("/rules/runs"))
    hidden: list[Any] = [
        await anonymous.get(f"/rules/{secret.id}"),
        await anonymous.get(f"/rules/plans/{plan.plan_id}"),
        await anonymous.post(f"/rules/plans/{plan.plan_id}/undo"),
        await anonymous.post(f"/rules/{secret.id}/delete"),
    ]
    compared = await anonymous.post(
        "/rules/new", do="compare", rule_yaml=text_of("Mine"), against_yaml=text_of("Old")
    )

    assert 303 == made.status_code
    assert "Mine" in seen
    assert "Secret" not in seen
    assert [404] * 4 == [response.status_code for response in hidden]
    assert "Compared 0 messages" in words(compared.text)


async def test_text_of_rules_and_mail_is_escaped(
    installation: WebInstallation, owner: WebUser, incoming: IncomingMail
) -> None:
    await incoming.arrive("Invoice <script>alert(2)</script>")
    text = text_of(HOSTILE).replace("mark_read", "{apply_label: '<script>alert(3)</script>'}")

    planned = await owner.post("/rules/new", do="plan", rule_yaml=text)
    await owner.post("/rules/new", do="save", rule_yaml=text)
    pages = [planned.text, await owner.read("/rules"), await owner.read("/rules/runs")]

    assert not any("<script>alert" in page for page in pages)
    assert all("&lt;script&gt;alert" in page for page in pages)


@pytest.mark.parametrize(
    "form",
    [{}, {"do": "what"}, {"do": "save"}, {"do": "plan", "rule_yaml": "x" * 70_000},
     {"do": "compare", "rule_yaml": "["}, {"do": "compare", "newest": "1e9", "rule_yaml": "a: b"},
     {"do": "save", "rule_yaml": "\x00"}],
)  # fmt: skip
async def test_an_invalid_rule_is_refused_with_a_reason(
    installation: WebInstallation, owner: WebUser, form: dict[str, str]
) -> None:
    response = await owner.post("/rules/new", **form)

    assert response.status_code in (400, 422)
    assert [] == await names(installation)


async def test_a_rule_without_its_key_has_a_warning(
    installation: WebInstallation, owner: WebUser
) -> None:
    key = await call(
        installation.owner, create_key, {"name": "helper", "scopes": ["read", "write"]}
    )
    async with installation.new_user() as person:
        await person.sign_in(key=key.key or "")
        await person.post("/rules/new", do="save", rule_yaml=text_of())
    assert "by the key helper" in words(await owner.read("/rules"))

    await call(installation.owner, delete_key, {"key_id": key.id})

    page = words(await owner.read("/rules"))
    assert "the key of the rule was revoked or has expired" in page
    assert "by a deleted key" in page
