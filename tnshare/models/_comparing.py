"""What two objects differ in, attribute by attribute; of networks of one architecture, tensors alone."""

from __future__ import annotations

import copyreg
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

Pair = tuple[str, Any, Any]  # a path, and what lies there in either object
# Whether two things are the same; or, if that is a matter of their parts, these.
Verdict = bool | Sequence[Pair]
Rule = Callable[[str, Any, Any], Verdict | None]

_PLAIN = (
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
)
_UNTOLD = frozenset(  # what classes of the same code may differ in
    (
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__qualname__",
        "__annotations__",
        "__firstlineno__",
        "__static_attributes__",
        "__init__",  # which has been run
        "__repr__",
        "_abc_impl",
    )
)
_OF_WRAPPERS = frozenset(functools.WRAPPER_ASSIGNMENTS) | {
    "__wrapped__"
}  # they say whom something stands for
_CONTAINERS = (dict, list, tuple, set, frozenset)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, staticmethod, classmethod, property)
_SHORT = 60


@dataclass(frozen=True)
class Difference:
    """Where two objects differ, as ``blocks.0.scale``, and what is there in the first and in the other."""

    path: str
    first: Any
    other: Any

    def values(self) -> tuple[str, str]:
        """Both values, as words that differ."""
        one, two = shown(self.first), shown(self.other)
        if one != two:
            return one, two
        return f"{one} ({_origin(self.first)})", f"{two} ({_origin(self.other)})"


def differences_of(
    pairs: Sequence[Pair], ignore: Sequence[str] = (), rule: Rule | None = None
) -> Iterator[Difference]:
    """Where the two of each pair differ, in order; what lies in ``ignore`` is not looked at.

    Values of Python are compared by kind and value, containers and objects by what they hold, functions and
    classes by their code and what it closes over. A ``rule`` that a framework brings is asked first: it says
    of tensors, modules and the like whether they are the same (None: it has nothing to say).
    """
    todo, seen = [*reversed(pairs)], set()
    alive: list[tuple[Any, Any]] = []  # what is made for the comparison must not hand its id on
    while todo:
        path, one, other = todo.pop()
        if one is other or (id(one), id(other)) in seen or is_ignored(path, ignore):
            continue
        verdict = None if rule is None else rule(path, one, other)
        verdict = _verdict(path, one, other) if verdict is None else verdict
        if verdict is False:
            yield Difference(path, one, other)
        elif verdict is not True:
            seen.add((id(one), id(other)))
            alive.append((one, other))
            todo += reversed(verdict)


def is_ignored(path: str, ignore: Sequence[str]) -> bool:
    """Whether a pattern means a path or what it is in: ``scale``, wherever it is, or ``blocks.*.scale``."""
    if not ignore:
        return False
    parts = path.replace("[", ".[").split(".")
    whole = [".".join(parts[: n + 1]).replace(".[", "[") for n in range(len(parts))]
    return any(fnmatchcase(name, pattern) for pattern in ignore for name in (*parts, *whole))


def shown(value: Any) -> str:
    """A value as an error has it: short; of a function or a class, its name."""
    if isinstance(value, functools.partial):
        return f"partial({shown(value.func)})"
    if hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    try:
        text = repr(value)
    except Exception:  # whatever a user's class makes of it
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def _origin(value: Any) -> str:
    """What tells values apart that look the same: where code is, else a type or an address."""
    code = getattr(value, "__code__", None)
    if isinstance(code, types.CodeType):
        return f"line {code.co_firstlineno} of {code.co_filename.rpartition('/')[2]}"
    return f"{type(value).__module__}.{type(value).__qualname__} at {id(value):#x}"


def _verdict(path: str, one: Any, other: Any) -> Verdict:
    if isinstance(one, type) and isinstance(other, type):
        return _classes(path, one, other)
    if type(one) is not type(other):
        if type(one).__name__ != type(other).__name__:
            return False
        return [(path, type(one), type(other)), *_attribute_pairs(path, one, other)]
    alike = _as_values(one, other)
    if alike is not None:
        return alike
    if isinstance(one, weakref.ref):
        return [(path, one(), other())]
    if isinstance(one, _FUNCTIONS):
        return _functions(path, one, other)
    if isinstance(one, Mapping | AbstractSet | list | tuple | deque) and len(one) != len(other):
        return False
    if isinstance(one, AbstractSet):
        return _equal(one, other) or _sets(path, one, other)
    try:
        return _held(path, one, other)
    except TypeError:  # it cannot be pickled: a file, an iterator
        return _equal(one, other)


def _as_values(one: Any, other: Any) -> bool | None:
    """Whether two things of one type that hold nothing are the same; None if they hold something."""
    if type(one) in _PLAIN or isinstance(one, types.ModuleType | types.BuiltinFunctionType):
        return repr(one) == repr(other)  # NaN is NaN, and -0.0 is not 0.0
    if isinstance(one, _PLAIN) and not _equal(one, other):  # of a class of its own
        return False
    if isinstance(one, Enum):
        return one.name == other.name and repr(one.value) == repr(other.value)
    if isinstance(one, np.ndarray | np.generic):
        return _arrays_alike(np.asarray(one), np.asarray(other))
    return _code(one) == _code(other) if isinstance(one, types.CodeType) else None


def _held(path: str, one: Any, other: Any) -> Verdict:
    """What objects hold: entries, attributes, slots, and what they are pickled by."""
    pairs: list[Pair] = []
    if isinstance(one, Mapping):
        pairs += [(f"{path}.keys", *keys) for keys in zip(one, other, strict=True)]
        values = zip(one, one.values(), other.values(), strict=True)
        pairs += [
            (f"{path}.{key}" if isinstance(key, str) else f"{path}[{shown(key)}]", a, b)
            for key, a, b in values
        ]
    elif isinstance(one, list | tuple | deque):
        pairs += [(f"{path}[{n}]", a, b) for n, (a, b) in enumerate(zip(one, other, strict=True))]
    pairs += _attribute_pairs(path, one, other)
    if type(one) in _CONTAINERS:
        return pairs
    if _reduces(type(one)):
        pairs += named_pairs(path, _reduced(one), _reduced(other))  # state that is no attribute
    return pairs or _is_of_python(type(one)) or type(one) is object or _equal(one, other)


def _attribute_pairs(path: str, one: Any, other: Any) -> list[Pair]:
    return named_pairs(path, _attributes(one), _attributes(other))


def named_pairs(path: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Pair]:
    """Attributes by name; what only one of both has is missing in the other."""
    start = f"{path}." if path else ""
    return [(f"{start}{name}", one.get(name, MISSING), other.get(name, MISSING)) for name in {**one, **other}]


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def _attributes(value: Any) -> dict[str, Any]:
    found = {n: v for n, v in getattr(value, "__dict__", {}).items() if n not in _OF_WRAPPERS}
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _reduces(kind: type) -> bool:
    """Whether objects of a kind say themselves what they are pickled by."""
    own = any("__reduce__" in vars(base) or "__reduce_ex__" in vars(base) for base in kind.__mro__[:-1])
    return own or kind in copyreg.dispatch_table


def _reduced(value: Any) -> dict[str, Any]:
    """What an object is pickled by: what makes it, of what, and its state."""
    own = copyreg.dispatch_table.get(type(value))
    made = value.__reduce_ex__(4) if own is None else own(value)
    return dict(zip(("maker", "made_of", "state"), (made,) if isinstance(made, str) else made, strict=False))


def _is_of_python(kind: type) -> bool:
    """Whether a class statement made it: all that its objects hold are attributes."""
    return bool(kind.__flags__ & 1 << 9)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # whatever a user's class makes of it
        return False


def _sets(path: str, one: AbstractSet[Any], other: AbstractSet[Any]) -> Verdict:
    if all(type(value) in _PLAIN for value in (*one, *other)):
        return False
    pairs = zip(sorted(one, key=shown), sorted(other, key=shown), strict=True)
    return [(f"{path}[{shown(a)}]", a, b) for a, b in pairs]


def _arrays_alike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def _functions(path: str, one: Any, other: Any) -> Verdict:
    if isinstance(one, functools.partial):
        parts = [
            (f"{path}.{part}", getattr(one, part), getattr(other, part)) for part in ("args", "keywords")
        ]
        return [(path, one.func, other.func), *parts]
    if isinstance(one, property):
        return [(path, getattr(one, part), getattr(other, part)) for part in ("fget", "fset", "fdel")]
    if isinstance(one, types.MethodType):
        return [(path, one.__func__, other.__func__), (f"{path}.__self__", one.__self__, other.__self__)]
    if isinstance(one, staticmethod | classmethod):
        return [(path, one.__func__, other.__func__)]
    if _code(one.__code__) != _code(other.__code__):
        return False
    parts = [
        (f"{path}.defaults", one.__defaults__, other.__defaults__),
        (f"{path}.defaults", one.__kwdefaults__, other.__kwdefaults__),
        *named_pairs(path, _cells(one), _cells(other)),
        *named_pairs(path, one.__dict__, other.__dict__),
    ]
    if one.__globals__ is not other.__globals__:  # of two modules: what it looks up there
        parts += named_pairs(path, _looked_up(one), _looked_up(other))
    return parts


def _cells(function: types.FunctionType) -> dict[str, Any]:
    """What a function closes over."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a cell that was never filled
            found[name] = MISSING
    return found


def _looked_up(function: types.FunctionType) -> dict[str, Any]:
    names = _names(function.__code__)
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _names(code: types.CodeType) -> dict[str, None]:
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return dict.fromkeys((*code.co_names, *(name for names in inner for name in names)))


def _code(code: types.CodeType) -> tuple[object, ...]:
    """What code does, wherever it stands."""
    consts = tuple(_code(c) if isinstance(c, types.CodeType) else (type(c), repr(c)) for c in code.co_consts)
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, consts, names, code.co_flags, code.co_argcount, code.co_kwonlyargcount


def _classes(path: str, one: type, other: type) -> Verdict:
    """Classes of one name and the same code are the same: those that a function makes anew, say."""
    if [a.__name__ for a in one.__mro__] != [b.__name__ for b in other.__mro__]:
        return False
    pairs: list[Pair] = []
    for a, b in zip(one.__mro__, other.__mro__, strict=True):
        if a is not b:
            if not _is_of_python(a):
                return False
            told = ({n: v for n, v in vars(kind).items() if n not in _UNTOLD} for kind in (a, b))
            pairs += named_pairs(path, *told)
    return pairs
