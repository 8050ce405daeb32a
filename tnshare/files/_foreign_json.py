"""JSON that somebody else may have written: read within limits, and of a known form before it is used."""

from __future__ import annotations

import json
import re
from typing import Any

# What a header may take: text of 24 MB, and a million of things that Python makes objects of.
LONGEST, MOST_PARTS = 24 << 20, 1_000_000

# A type, a pattern that text must fit, a list of one form, or a dict of forms; "name?" may be missing.
Form = type | re.Pattern[str] | list[Any] | dict[str, Any] | tuple[Any, ...]
_Where = tuple[Any, ...]


class DamagedError(Exception):
    """What in a file makes no sense; whoever reads it says which file it is."""


def parsed(raw: bytes | str) -> Any:
    """The JSON in a text, if it has no key twice, and is neither deep nor larger than any that is written."""
    raw = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    if len(raw) > LONGEST or sum(raw.count(mark) for mark in (b",", b"[", b"{")) > MOST_PARTS:
        raise DamagedError("its description is larger than tnshare writes any")
    try:
        return json.loads(raw, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:  # of text that is no UTF-8, numbers of 5,000 digits too
        raise DamagedError(f"its description is no JSON: {error}") from None


def check_form(value: Any, form: Form, where: _Where = ()) -> None:
    """Refuse a value that has not this form; whole numbers are those of sizes, 0 to 2**63 - 1."""
    if isinstance(form, dict):
        _check_dict(value, form, where)
    elif isinstance(form, list):
        _check_type(value, list, where)
        for number, item in enumerate(value):
            check_form(item, form[0], (where, number))
    elif isinstance(form, re.Pattern):
        _check_type(value, str, where)
        if not form.fullmatch(value):
            raise DamagedError(f"{_spelled(where)} is {shown(value)}")
    elif form is int:
        _check_type(value, int, where)
        if isinstance(value, bool) or not 0 <= value < 2**63:
            raise DamagedError(f"{_spelled(where)} is {shown(value)}, which is no size")
    else:
        _check_type(value, form, where)


def shown(value: Any) -> str:
    """A value in an error, no longer than a line; whole numbers may have more digits than Python shows."""
    text = f"a number of {value.bit_length()} bits" if _is_vast(value) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_vast(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > 200


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise DamagedError(f"its description has {shown(twice)} twice")
    return found


def _check_dict(value: Any, form: dict[str, Any], where: _Where) -> None:
    _check_type(value, dict, where)
    wanted = {key.removesuffix("?"): inner for key, inner in form.items()}
    for key, inner in value.items():
        if key not in wanted:
            raise DamagedError(f"{_spelled(where)} has {shown(key)}, which nothing here has")
        check_form(inner, wanted[key], (where, key))
    missing = [key for key in form if not key.endswith("?") and key not in value]
    if missing:
        raise DamagedError(f"{_spelled(where)} has no {missing[0]!r}")


def _check_type(value: Any, kind: Any, where: _Where) -> None:
    if not isinstance(value, kind):
        wanted = kind.__name__ if isinstance(kind, type) else " or ".join(one.__name__ for one in kind)
        raise DamagedError(f"{_spelled(where)} is {shown(value)} where {wanted} was expected")


def _spelled(where: _Where) -> str:
    """``entries[0].shape`` of (((((), "entries"), 0), "shape")."""
    keys: list[Any] = []
    while where:
        where, key = where
        keys.append(key)
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:60]}" for key in reversed(keys))
    return text.removeprefix(".") or "its description"
