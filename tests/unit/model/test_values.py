"""Frozen values behave like frozen dataclasses."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, field, replace

import pytest

from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A value with every kind of field."""

    x: int
    names: list[str] = field(default_factory=list)
    secret: str = field(default="s", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Named(Point):
    """A value that inherits fields."""

    name: str = field(default="", kw_only=True)


def test_fields_defaults_and_factories_are_those_of_a_dataclass():
    assert {"x": 1, "names": [], "secret": "s", "name": "n"} == asdict(Named(1, name="n"))
    assert Point(1).names is not Point(1).names
    assert Point(2) == replace(Point(1), x=2)


def test_a_value_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]


def test_values_are_compared_and_shown_by_the_fields_that_say_so():
    assert Point(1, secret="a") == Point(1, secret="b")
    assert Point(1) != Named(1)
    assert hash(Point(1, ())) == hash(Point(1, (), "other"))
    assert "Point(x=1, names=[])" == repr(Point(1))


def test_a_value_can_be_pickled():
    assert Named(1, ["a"], name="n") == pickle.loads(pickle.dumps(Named(1, ["a"], name="n")))
