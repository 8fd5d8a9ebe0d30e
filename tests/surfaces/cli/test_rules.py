"""Rules in files are validated and tested on old mail; the audit log is shown and verified."""

from __future__ import annotations

import apsw
import pytest

from tests.mails import mail

GOOD = "name: Bills\nwhen: [{subject: {contains: invoice}}]\nthen: [{apply_label: Bills}]\n"
STRICT = GOOD.replace("then: [", "then: [flag, ")


@pytest.fixture
def mbox(data):
    """Three old mails."""
    path = data.parent / "old.mbox"
    raws = [mail("Invoice 1"), mail("Lunch?"), mail("Your invoice")]
    path.write_bytes(b"".join(b"From x@y Thu Jan  1 00:00:00 2026\n" + r + b"\n" for r in raws))
    return path


@pytest.fixture
def rules(data):
    """Write a rules file."""

    def write(name: str, text: str) -> str:
        path = data.parent / name
        path.write_text(text)
        return str(path)

    return write


def test_valid_rules_are_reported_as_valid(postroom, rules):
    result = postroom("rule", "check", rules("a.yaml", f"{GOOD}---\n{STRICT}"))

    assert 0 == result.code
    assert 2 == result.out.count("Bills: ok")


@pytest.mark.parametrize(
    ("when", "advice"),
    [
        ("from: builds.example", '"@builds.example"'),
        ("attachment.type: pdf", "{contains: pdf}"),
        (
            "all: [{size_bytes: {less_than: 5}}, {size_bytes: {greater_than: 9}}]",
            "exclude each other",
        ),
    ],
)
def test_a_rule_that_never_matches_is_warned_about(postroom, rules, when, advice):
    path = rules("a.yaml", f"name: x\nwhen: {{{when}}}\nthen: [stop]\n")

    told, found = postroom("rule", "check", path), postroom("rule", "check", path, "-o", "json")

    assert (0, 0) == (told.code, found.code)
    assert "x: ok" in told.out
    assert advice in told.err
    [warning] = found.json["rules"][0]["warnings"]
    assert advice in warning


def test_a_problem_is_reported_with_its_file_line_and_column(postroom, rules):
    path = rules("a.yaml", "name: x\nwhen: [{subjct: y}]\nthen: [stop]\n")

    result = postroom("rule", "check", path)

    assert 2 == result.code
    assert "a.yaml: line 2, column 9: unknown field `subjct`" in result.err
    assert "did you mean `subject`?" in result.err


@pytest.mark.parametrize("words", [("rule", "check"), ("rule", "create", "--file")])
def test_a_problem_of_a_rule_is_reported_in_terms_of_rules(postroom, rules, words):
    path = rules("a.yaml", GOOD.replace("apply_label", "label"))

    result = postroom(*words, path)

    assert 2 == result.code
    assert "unknown action `label`; expected one of apply_label, remove_label" in result.err
    assert "did you mean `apply_label`?" in result.err


def test_a_problem_of_a_rule_that_is_created_names_the_option(postroom, rules):
    result = postroom("rule", "create", "--file", rules("a.yaml", f"{GOOD}---\n{STRICT}"))

    assert 2 == result.code
    assert result.err.startswith("error: --rule-yaml: line 1")


def test_a_file_of_rules_that_is_missing_is_wrong_input(postroom, rules, mbox):
    missing = postroom("rule", "check", "no.yaml")
    tried = postroom("rule", "test", "no.yaml", "--mbox", mbox)

    assert (2, 2) == (missing.code, tried.code)
    assert "error: no.yaml: No such file or directory" == missing.err.strip() == tried.err.strip()


def test_rules_are_tested_on_old_mail(postroom, rules, mbox):
    result = postroom("rule", "test", rules("a.yaml", GOOD), "--mbox", mbox, "-o", "json")

    assert (3, 2, {"Bills": 2}) == (
        result.json["mails"],
        result.json["matched"],
        result.json["matches_by_rule"],
    )
    first = result.json["messages"][0]
    assert [{"type": "apply_label", "label": "Bills"}] == first["actions"]
    assert ['subject contains "invoice"'] == first["why"]


def test_two_versions_of_a_set_are_compared(postroom, rules, mbox):
    old, new = rules("old.yaml", GOOD), rules("new.yaml", STRICT)

    result = postroom("rule", "test", new, "--against", old, "--mbox", mbox, "-o", "json")
    words = postroom("rule", "test", new, "--against", old, "--mbox", mbox)
    same = postroom("rule", "test", old, "--against", old, "--mbox", mbox, "-o", "json")

    assert (2, 0) == (result.json["changed"], same.json["changed"])
    assert "flag" == result.json["diff"][0]["after"][0]["type"]
    assert "  - apply_label: Bills\n  + flag, apply_label: Bills" in words.out


def test_a_rule_is_planned_applied_and_undone(postroom, rules, receive):
    message = receive(mail("Invoice"))["message_id"]
    path = rules("a.yaml", GOOD)

    plan = postroom("rule", "create", "--file", path, "-o", "json").json
    shown = postroom("rule", "create", "--file", path)
    applied = postroom("rule", "apply", plan["plan_id"], "-o", "json")
    labelled = postroom("message", "show", message, "-o", "json").json["labels"]
    undone = postroom("rule", "undo", plan["plan_id"], "-o", "json")

    assert f"postroom rule apply {shown.out.split(':')[0]}" in shown.out
    assert ([message], ["Bills"]) == (applied.json["succeeded"], labelled)
    assert (0, [message]) == (undone.code, undone.json["succeeded"])
    assert [] == postroom("message", "show", message, "-o", "json").json["labels"]
    assert 5 == postroom("rule", "apply", plan["plan_id"]).code


def test_the_log_is_listed_and_tampering_is_detected(postroom, data, receive):
    message = receive(mail())["message_id"]
    postroom("message", "label", "Work", message)

    listed = postroom("audit", "list", message)
    whole = postroom("audit", "verify")
    db = apsw.Connection(str(data / "postroom.db"))
    db.execute("DROP TRIGGER audit_no_update; UPDATE audit SET target = 'msg_x' WHERE number = 2")
    db.close()
    broken = postroom("audit", "verify", "-o", "json")

    assert ["apply_label", "receive_message"] == [row[4] for row in listed.rows]
    assert (0, True) == (whole.code, "no problems" in whole.out)
    assert (1, True) == (broken.code, "entry 2" in broken.json["problems"][0])
    assert 1 == postroom("verify").code


def test_doctor_reports_a_rule_without_its_key(postroom, data, rules):
    path = rules("a.yaml", GOOD)
    rule_id = postroom("rule", "create", "--file", path, "--no-dry-run", "-o", "json").json["id"]
    before = _checks(postroom)["rules"]
    db = apsw.Connection(str(data / "postroom.db"))
    db.execute("UPDATE rules SET authority = 'key_gone'")
    db.close()
    found = _checks(postroom)["rules"]
    postroom("rule", "update", rule_id, "--enabled")

    assert ("ok", "warning") == (before["status"], found["status"])
    assert (True, True) == (rule_id in found["detail"], "revoked" in found["detail"])
    assert f"postroom rule update {rule_id} --enabled" in found["fix"]
    assert "ok" == _checks(postroom)["rules"]["status"]


def _checks(postroom):
    found = postroom("doctor", "-o", "json").json["checks"]
    return {check["check"]: check for check in found}
