"""Addresses are compared as they are routed, in any spelling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.addresses import (
    base_address,
    canonical_address,
    is_reserved,
    plus_address_range,
    reserved_names,
)

_ATOMS = st.text("abcxyz0189+-_=!#", min_size=1, max_size=12)
_LOCALS = st.lists(_ATOMS, min_size=1, max_size=3).map(".".join)
_ANYTHING = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Bob@Example.COM", "bob@example.com"),
        ('"bob"@example.com', "bob@example.com"),
        ('"b\\ob+x"@example.com', "bob+x@example.com"),
        ('"bob smith"@example.com', '"bob smith"@example.com'),
        ('"a\\"b"@example.com', '"a\\"b"@example.com'),
        ('"a@b"@example.com', '"a@b"@example.com'),
        ('".bob"@example.com', '".bob"@example.com'),
        ("bob@example.com.", "bob@example.com"),
        ("bob@BÜCHER.example", "bob@xn--bcher-kva.example"),
        ("bob@ｅｘａｍｐｌｅ.com", "bob@example.com"),
        ("bob@example。com", "bob@example.com"),
    ],
)
def test_the_canonical_form_of_an_address(written: str, plain: str) -> None:
    assert plain == canonical_address(written)


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("bob@example.com", "bob@example.com"),
        ("bob+tag@example.com", "bob@example.com"),
        ("bob+@example.com", "bob@example.com"),
        ("bob++@example.com", "bob@example.com"),
        ("bob+a+b@example.com", "bob@example.com"),
        ("+tag@example.com", "+tag@example.com"),
        ("+@example.com", "+@example.com"),
        ("b.ob+x.y@example.com", "b.ob@example.com"),
        ('"bob+a b"@example.com', "bob@example.com"),
        ('"b ob+a"@example.com', '"b ob"@example.com'),
    ],
)
def test_a_tag_belongs_to_the_address_before_the_plus(address: str, base: str) -> None:
    assert base == base_address(address)


@given(_LOCALS)
def test_quotes_that_are_not_needed_make_no_other_address(local: str) -> None:
    plain = canonical_address(f"{local}@example.com")

    assert plain == canonical_address(f'"{local}"@example.com')
    assert plain == canonical_address('"' + "".join(f"\\{c}" for c in local) + '"@EXAMPLE.com')


@given(_ANYTHING)
def test_the_canonical_form_is_idempotent(content: str) -> None:
    escaped = content.replace("\\", "\\\\").replace('"', '\\"')
    plain = canonical_address(f'"{escaped}"@example.com')

    assert plain == canonical_address(plain)
    assert base_address(plain) == base_address(base_address(plain)) or content.startswith("+")


@given(_LOCALS.filter(lambda local: "+" not in local), _ATOMS)
def test_tags_are_found_by_range(local: str, tag: str) -> None:
    first, past = plus_address_range(f"{local}@example.com")

    assert first <= f"{local}+{tag}@example.com" < past
    assert not first <= f"{local}@example.com" < past


@pytest.mark.parametrize("name", ["postmaster", "admin", "abuse", "info", "mailer-daemon", "ROOT"])
def test_role_names_of_a_domain_are_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize("name", ["post.master", "administrators", "bob", "noreply", "admin1", ""])
def test_other_names_are_not(name: str) -> None:
    assert not is_reserved(name)


def test_reserved_names_are_written_as_they_are_compared() -> None:
    assert {
        name for name in reserved_names() if canonical_address(f"{name}@x") != f"{name}@x"
    } == set()
    assert {name for name in reserved_names() if base_address(f"{name}@x") != f"{name}@x"} == set()


def test_the_handbook_lists_every_reserved_name() -> None:
    handbook = (Path(__file__).parents[3] / "docs" / "reference" / "rest.md").read_text()
    told = handbook.partition("The reserved names")[2].partition("Case and")[0]

    assert set(re.findall(r"`([a-z0-9-]+)`", told)) == reserved_names()
