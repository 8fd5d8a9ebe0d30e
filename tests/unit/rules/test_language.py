"""Rules are parsed, and errors are reported with their position."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.model.rule import Action
from postroom.rules.definition import Comparison, Group, Safety
from postroom.rules.parser import parse_rule, parse_rules

INVOICES = """
version: 1
name: Invoices to bookkeeping
description: All that suppliers send
enabled: false
inbox: inb_1
when:
  all:
    - subject: {contains: invoice}
    - any: [{from: {equals: "@supplier.example"}}, {attachment.name: {matches: "*.pdf"}}]
    - not: {label: {equals: Paid}}
then: [{apply_label: Bookkeeping}, mark_read, {move: Archive}, stop]
safety: {max_messages: 50, require_plan: true, undo: false}
"""


def refusal(text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        parse_rule(text)
    return refused.value


def test_a_rule_is_parsed():
    rule = parse_rule(INVOICES)

    assert "Invoices to bookkeeping" == rule.name
    assert (False, "inb_1", None) == (rule.enabled, rule.inbox, rule.account)
    assert Safety(50, require_plan=True, undo=False) == rule.safety
    assert (
        Action("apply_label", "Bookkeeping"),
        Action("mark_read"),
        Action("move", "Archive"),
        Action("stop"),
    ) == rule.then
    assert isinstance(rule.when, Group)
    first, alternatives, unpaid = rule.when.parts
    assert Comparison("subject", "contains", "invoice") == first
    assert isinstance(alternatives, Group)
    assert "any" == alternatives.kind
    assert isinstance(unpaid, Group)
    assert "none" == unpaid.kind


def test_the_flat_form_is_the_same_rule():
    flat = parse_rule("""
name: x
conditions:
  - {field: subject, operator: contains, value: invoice}
  - {field: size_bytes, operator: greater_than, value: 1000}
actions:
  - {type: apply_label, label: Bookkeeping}
  - {type: move, mailbox: Archive}
  - {type: mark_read}
""")
    nested = parse_rule("""
name: x
when: [{subject: {contains: invoice}}, {size_bytes: {greater_than: 1000}}]
then: [{apply_label: Bookkeeping}, {move: Archive}, mark_read]
""")

    assert flat == nested


def test_a_rule_may_be_json():
    rule = parse_rule(
        '{"name": "x", "when": [{"from": {"equals": "a@b.org"}}], "then": ["archive"]}'
    )

    assert (Action("archive"),) == rule.then


@pytest.mark.parametrize("word", ["no", "on", "off", "yes", "0644", "1e3", "0x1f", "1:30"])
def test_yaml_booleans_and_numbers_stay_text(word):
    rule = parse_rule(f"when: [{{subject: {{equals: {word}}}}}]\nthen: [mark_read]")

    assert [Comparison("subject", "equals", word)] == list(rule.tests())


def test_each_document_is_a_rule():
    one = "name: {}\nwhen: [{{subject: x}}]\nthen: [stop]\n"

    rules = parse_rules(one.format("a") + "---\n" + one.format("b"))

    assert ["a", "b"] == [rule.name for rule in rules]
    assert "2 documents" in str(refusal(one.format("a") + "---\n" + one.format("b")))


def rule_with(condition: str = "{subject: x}", action: str = "mark_read", more: str = "") -> str:
    return f"name: r\nwhen:\n  - {condition}\nthen:\n  - {action}\n{more}"


@pytest.mark.parametrize(
    ("text", "line", "column", "says", "suggests"),
    [
        (rule_with("{subjct: {contains: x}}"), 3, 6, "unknown field `subjct`", "subject"),
        (rule_with("{subject: {contain: x}}"), 3, 16, "no operator `contain`", "contains"),
        (rule_with(action="aply_label: X"), 5, 5, "unknown action `aply_label`", "apply_label"),
        (rule_with(more="saftey: {}"), 6, 1, "unknown key `saftey`", "safety"),
        (rule_with("{flag: {equals: sen}}"), 3, 21, "unknown flag `sen`", "seen"),
        (rule_with("{size_bytes: {greater_than: big}}"), 3, 33, "is a number", ""),
        (rule_with("{has_attachment: maybe}"), 3, 22, "neither true nor false", ""),
        (rule_with("{subject: {regex: '(a'}}"), 3, 23, "regular expression", ""),
        (rule_with("{subject: {regex: '(?=a)'}}"), 3, 23, "regular expression", ""),
        (rule_with("{subject: {contains: '  '}}"), 3, 26, "only white space", ""),
        (rule_with("{age_days: {contains: 1}}"), 3, 17, "no operator `contains`", ""),
        (rule_with("{date: {contains: x}}"), 3, 13, "no operator `contains`", ""),
        (rule_with("{date: 2026-01-31}"), 3, 12, "needs after or before", ""),
        (rule_with("{date: {after: soon}}"), 3, 20, "`soon` is not a date", ""),
        (rule_with("{date: {before: 2026-02-30}}"), 3, 21, "is not a date", ""),
        (rule_with("{any: []}"), 3, 11, "has no condition", ""),
        (rule_with("[]"), 3, 5, "a condition is a mapping", ""),
        (rule_with(action="apply_label"), 5, 5, "needs a value", ""),
        (rule_with(action='apply_label: "\u200b"'), 5, 18, "needs a value", ""),
        (rule_with(action="{forward: nobody}"), 5, 15, "not an address", ""),
        (rule_with(action="{webhook: ftp://x}"), 5, 15, "not a webhook", ""),
        (rule_with(action="{move: '*'}"), 5, 12, "every mailbox", ""),
        (rule_with(action="{mark_read: twice}"), 5, 17, "takes no value", ""),
        (rule_with(more="version: 2"), 6, 10, "unknown version", ""),
        (rule_with(more="enabled: maybe"), 6, 10, "true or false", ""),
        (rule_with(more="safety: {max_messages: 0}"), 6, 24, "must be a number", ""),
        (rule_with(more="conditions: []"), 6, 1, "not both", ""),
        ("name: r\nthen: [stop]", 1, 1, "no condition", ""),
        ("name: r\nwhen: [{subject: x}]", 1, 1, "no action", ""),
        ("- a\n- b", 1, 1, "a rule is a mapping", ""),
        ("", 1, 1, "the document is empty", ""),
        ("when: [", 1, 8, "expected the node content", ""),
        ("a: &x 1\nb: *x", 1, 4, "anchors", ""),
        ("a: *x", 1, 4, "aliases", ""),
        ("a: !!python/object/apply:os.system [x]", 1, 4, "tags", ""),
        ("a: !!str 1", 1, 4, "tags", ""),
        ("<<: {a: 1}", 1, 1, "merge keys", ""),
        ("name: a\nname: b", 2, 1, "duplicate key `name`, first in line 1", ""),
        ("{[a]: 1}", 1, 2, "a key must be a word", ""),
        ("a: " + "[" * 30, 1, 24, "nested deeper", ""),
        ("a: '" + "x" * 70_000 + "'", 1, 1, "more than 65536 bytes", ""),
        ("a: [" + "1," * 6_000 + "]", 1, None, "more than 5000 values", ""),
        ("name: a\n\x00", 2, 1, "does not allow", ""),
        ('a: "\\U00110000"', 1, None, "YAML", ""),
    ],
)  # fmt: skip
def test_errors_have_a_position(text, line, column, says, suggests):
    problem = refusal(text).details["problems"][0]

    assert says in problem["problem"]
    assert line == problem["line"]
    assert column in (None, problem["column"])
    assert suggests == problem["suggestion"]


def test_all_problems_are_reported_at_once():
    told = refusal("name: r\nwhen: [{subjct: x}, {form: y}]\nthen: [arcive]").details["problems"]

    assert ["subject", "from", "archive"] == [problem["suggestion"] for problem in told]
    assert all(problem["field"] == "rule_yaml" for problem in told)
