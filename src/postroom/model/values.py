"""What keeps a start quick: `dataclass` for frozen values, and `late_pattern`.

The standard decorator of Python 3.11 compiles six functions per frozen class, and the two hundred
classes of a start took a third of it. This one compiles `__init__` only, and that when the first
value is made. The classes are ordinary dataclasses: `fields`, `replace` and `asdict` work. Other
kinds are left to the standard decorator. Regular expressions are compiled with their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - mypy: an export
else:
    import dataclasses
    from operator import attrgetter

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **options):
        """Like `dataclasses.dataclass`."""
        if cls is not None or options or not (frozen and slots):
            chosen = {"frozen": frozen, "slots": slots, "kw_only": kw_only, **options}
            return dataclasses.dataclass(cls, **chosen)
        return lambda kind: _frozen(kind, kw_only)

    def _frozen(kind, kw_only):
        own = dict(vars(kind))
        if any(isinstance(value, dataclasses.Field) and not value.init for value in own.values()):
            return dataclasses.dataclass(frozen=True, slots=True, kw_only=kw_only)(kind)
        kind = dataclasses.dataclass(
            init=False, repr=False, eq=False, match_args=True, slots=True, kw_only=kw_only
        )(kind)
        fields = dataclasses.fields(kind)
        methods = {
            "__init__": _first_init(kind, fields),
            "__setattr__": _refuse,
            "__delattr__": _refuse,
            "__getstate__": _state(fields),
            "__setstate__": _set_state(fields),
            "__repr__": _repr([f.name for f in fields if f.repr]),
            **_comparison(kind, [f.name for f in fields if f.compare]),
        }
        for name, method in methods.items():
            if name not in own:
                setattr(kind, name, method)
        return kind

    def _first_init(kind, fields):
        """An `__init__` that replaces itself: most classes are not used in most processes."""

        def __init__(self, *args, **kwargs):  # noqa: N807
            kind.__init__ = _init(kind, fields)
            kind.__init__(self, *args, **kwargs)

        return __init__

    def _init(kind, fields):
        """The one function that is compiled: `def __init__(self, a, b=_b, *, c): …`."""
        missing = object()
        scope = {"_missing": missing, "_set": object.__setattr__}
        plain, keywords, body = [], [], []
        for field in fields:
            name, value = field.name, field.name
            parameter = name
            if field.default is not dataclasses.MISSING:
                scope[f"_{name}"] = field.default
                parameter = f"{name}=_{name}"
            elif field.default_factory is not dataclasses.MISSING:
                scope[f"_{name}"] = field.default_factory
                parameter = f"{name}=_missing"
                value = f"_{name}() if {name} is _missing else {name}"
            (keywords if field.kw_only else plain).append(parameter)
            body.append(f" _set(self, {name!r}, {value})")
        if hasattr(kind, "__post_init__"):
            body.append(" self.__post_init__()")
        parameters = ", ".join(["self", *plain, *(["*", *keywords] if keywords else [])])
        exec(f"def __init__({parameters}):\n" + ("\n".join(body) or " pass"), scope)  # noqa: S102
        init = scope["__init__"]
        init.__qualname__ = f"{kind.__qualname__}.__init__"
        init.__annotations__ = {field.name: field.type for field in fields}
        return init

    def _comparison(kind, names):
        key = attrgetter(*names) if names else lambda _: ()

        def __eq__(self, other):  # noqa: N807
            if other.__class__ is self.__class__:
                return key(self) == key(other)
            return NotImplemented

        def __hash__(self):  # noqa: N807
            return hash(key(self))

        return {"__eq__": __eq__, "__hash__": __hash__}

    def _repr(names):
        def __repr__(self):  # noqa: N807
            inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{self.__class__.__qualname__}({inside})"

        return __repr__

    def _refuse(self, name, *_):
        raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")

    def _state(fields):
        return lambda self: [getattr(self, field.name) for field in fields]

    def _set_state(fields):
        def __setstate__(self, state):  # noqa: N807
            for field, value in zip(fields, state, strict=True):
                object.__setattr__(self, field.name, value)

        return __setstate__


import re
from typing import Any, AnyStr, cast


def late_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, but only for the methods of the pattern: `re.sub` refuses it."""
    return cast("re.Pattern[AnyStr]", _LatePattern(source, flags))


class _LatePattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        found = {one: getattr(compiled, one) for one in dir(compiled) if not one.startswith("_")}
        vars(self).update(found)  # from now on, this function is not called
        return found[name]
