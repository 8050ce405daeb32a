"""Files that are damaged, crafted, or somebody else's, drawn from seeds: the same file at any time."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CANARY = "tnshare_canary"
CODE = (
    f"x\n    import builtins; builtins.{CANARY} = 1\n#",
    f"x)\nimport builtins; builtins.{CANARY} = 1\n#",
    f"__import__('builtins').__setattr__('{CANARY}', 1)",
    f"x\r__import__('builtins').{CANARY} = 1",
    f"x\x0cimport builtins as b; b.{CANARY} = 1",
)


@dataclass(frozen=True)
class Damaged:
    """The bytes of a file, what was done to it, and whether its sums were made good afterwards."""

    data: bytes
    mutation: str
    sealed: bool = False


def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its numbers."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: Any, numbers: bytes) -> bytes:
    """A file of a header, which may be text, and numbers."""
    text = header if isinstance(header, str) else json.dumps(header)
    raw = text.encode("utf-8", "surrogatepass")
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw + numbers


def described(data: bytes) -> Any:
    """What tnshare wrote about the numbers of a file."""
    return json.loads(parts_of(data)[0]["__metadata__"]["tnshare"])


def sealed(data: bytes, content: Any) -> bytes:
    """The file with this description, and the sums that fit it."""
    header, numbers = parts_of(data)
    today = "sha256" not in header.get("__metadata__", {})
    if today and isinstance(content, dict):
        _seal_arrays(content, header, numbers)
    text = content if isinstance(content, str) else json.dumps(content)
    header["__metadata__"] = {**header.get("__metadata__", {}), "tnshare": text}
    if today:
        header["__metadata__"]["sum"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    else:
        header["__metadata__"]["sha256"] = _first_sum(text, header, numbers)
    return joined(header, numbers)


def _seal_arrays(content: dict[str, Any], header: dict[str, Any], numbers: bytes) -> None:
    """Make good the sums of blocks of rows, as far as there still are rows and sums."""
    arrays = content.get("arrays")
    for number, one in enumerate(arrays if isinstance(arrays, list) else ()):
        try:
            entry = header[str(number)]
            own, count = numbers[slice(*entry["data_offsets"])], len(one["sums"])
            step = max(1, one["rows"] * len(own) // max([1, *entry["shape"][:1]]))
            blocks = [own[n * step : (n + 1) * step] for n in range(count)]
            one["sums"] = [hashlib.sha256(block).hexdigest() for block in blocks]
        except (KeyError, TypeError, IndexError, ValueError):
            continue


_DTYPES = {"BOOL": "bool", "BF16": "bfloat16"} | {
    f"{letter}{bits}": f"{word}{bits}"
    for letter, word in (("I", "int"), ("U", "uint"), ("F", "float"))
    for bits in (8, 16, 32, 64)
}


def _first_sum(text: str, header: dict[str, Any], numbers: bytes) -> str:
    """The sum that version 0.1.0 wrote: of the description and of all numbers."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for key in sorted(name for name in header if name != "__metadata__"):
        entry = header[key]
        dtype, shape = _DTYPES.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"])
        digest.update(f"\0{key}\0{dtype}\0{shape}\0".encode())
        digest.update(numbers[slice(*entry["data_offsets"])])
    return digest.hexdigest()


# ---- how they are damaged ---------------------------------------------------------------------------------

Mutation = Callable[[random.Random, bytes, list[bytes]], Damaged]


def _flip(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    changed = bytearray(data)
    places = [draw.randrange(len(data)) for _ in range(draw.choice([1, 1, 1, 2, 9, 100]))]
    for place in places:
        changed[place] ^= 1 << draw.randrange(8)
    return Damaged(bytes(changed), f"bits at {places[:3]}")


def _flip_in_header(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    changed = bytearray(data)
    place = draw.randrange(8 + int.from_bytes(data[:8], "little"))
    changed[place] = draw.choice([0, 0x22, 0x2C, 0x5B, 0x7B, 0x30, 0x39, 0xFF, draw.randrange(256)])
    return Damaged(bytes(changed), f"byte {place} of the header")


def _cut(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    length = draw.choice([0, 1, 7, 8, 9, draw.randrange(len(data)), len(data) - 1])
    return Damaged(data[:length], f"cut at {length}")


def _longer(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    more = draw.choice([b"\0", b" ", b"PK\x05\x06" + bytes(18), data, draw.randbytes(100), bytes(10_000)])
    return Damaged(data + more, f"{len(more)} bytes more")


def _moved(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    a, b = sorted(draw.randrange(len(data)) for _ in range(2))
    what = draw.choice(["zeros", "gone", "twice", "noise", "swapped"])
    middle = {
        "zeros": bytes(b - a),
        "gone": b"",
        "twice": data[a:b] * 2,
        "noise": draw.randbytes(b - a),
        "swapped": data[a:b][::-1],
    }[what]
    return Damaged(data[:a] + middle + data[b:], f"{a}:{b} {what}")


def _length_field(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    length = int.from_bytes(data[:8], "little")
    wrong = draw.choice(
        [0, 1, length - 1, length + 1, len(data), 2**31, 2**63, 2**64 - 1, 100_000_001, 10**8]
    )
    return Damaged(wrong.to_bytes(8, "little") + data[8:], f"length of the header {wrong}")


_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**4000, 1.5, 1e308, -0.0,
    float("nan"), float("inf"), "", "a", "0", "1", "L", "core", "task", "nan", "1e999", "float32", "object",
    "O", "bfloat16", "complex64", "float32,float32", "V8", "M8[s]", "(3,)f4", "tucker", "laf", "tt", "array",
    "decomposition", "sparse", "\ud800", "\0", "x" * 201, "x" * 100_000, "a b", "class", "a'", "__proto__",
    [], {}, [[]], [None], {"a": None}, [0] * 1000, [1] * 65, list(range(40)), *CODE,
)  # fmt: skip


def _place(draw: random.Random, tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree of dicts and lists."""
    found: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        items = list(node.items() if isinstance(node, dict) else enumerate(node))
        for key, value in items:
            found.append((node, key))
            if isinstance(value, dict | list):
                stack.append(value)
    return found


def _edited(draw: random.Random, tree: Any) -> str:
    """Change one thing somewhere in a tree; says what."""
    places = _place(draw, tree)
    node, key = draw.choice(places)
    how = draw.choice(["odd", "odd", "odd", "gone", "twice", "key", "other", "more", "order"])
    if how == "odd":
        node[key] = draw.choice(_ODD)
    elif how == "gone":
        del node[key]
    elif how == "twice" and isinstance(node, list):
        node.append(node[key])
    elif how == "key" and isinstance(node, dict):
        node[str(draw.choice(_ODD))[:2000]] = node.pop(key)
    elif how == "more" and isinstance(node, dict):
        node[draw.choice(["new", "codes", "given", "kind", "single", *CODE])] = draw.choice(_ODD)
    elif how == "order":
        container = node[key]
        if isinstance(container, list):
            draw.shuffle(container)
        elif isinstance(container, dict):
            items = list(container.items())
            draw.shuffle(items)
            container.clear()
            container.update(items)
    else:
        other, name = draw.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            node[key] = json.loads(json.dumps(other[name]))
    return f"{how} at {str(key)[:40]!r}"


def _content(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    content = described(data)
    done = [_edited(draw, content) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    return Damaged(sealed(data, content), f"description: {', '.join(done)}", sealed=True)


def _content_unsealed(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    header, numbers = parts_of(data)
    content = described(data)
    done = _edited(draw, content)
    header["__metadata__"]["tnshare"] = json.dumps(content)
    return Damaged(joined(header, numbers), f"description, and not its sum: {done}")


def _named_code(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    """Every name of a kind is code: of axes, factors, entries, tasks."""
    content, code = described(data), draw.choice(CODE)
    words = sorted({key for node, key in _place(draw, content) if isinstance(key, str)})
    words += sorted({node[key] for node, key in _place(draw, content) if isinstance(node[key], str)})
    axes = [
        word for word in words if word in ("task", "i", "o", "axis0", "axis1", "axis_0", "axis_1", "d1", "d2")
    ]
    word = draw.choice(draw.choice([words, axes]) or words)

    def renamed(node: Any) -> Any:
        """Factors are named after axes, so both are renamed alike."""
        if isinstance(node, dict):
            return {renamed(key): renamed(value) for key, value in node.items()}
        if isinstance(node, list):
            return [renamed(value) for value in node]
        return {word: code, f"U_{word}": f"U_{code}"}.get(node, node) if isinstance(node, str) else node

    return Damaged(sealed(data, renamed(content)), f"{word[:40]!r} is code", sealed=True)


def _header(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    header, numbers = parts_of(data)
    tensors = {key: value for key, value in header.items() if key != "__metadata__"}
    done = _edited(draw, tensors or header)
    made = {"__metadata__": header["__metadata__"], **tensors} if "__metadata__" in header else header
    return Damaged(joined(made, numbers), f"header: {done}")


def _offsets(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    """Shapes and offsets that overlap, lie outside, or multiply to far more than there is; sums made good."""
    header, numbers = parts_of(data)
    keys = [key for key in header if key != "__metadata__"]
    key, other = draw.choice(keys), draw.choice(keys)
    entry = header[key]
    start, stop = entry["data_offsets"]
    how = draw.choice(["overlap", "outside", "negative", "vast", "shape", "dtype", "turned", "renamed"])
    if how == "overlap":
        entry["data_offsets"] = list(header[other]["data_offsets"])
    elif how == "outside":
        entry["data_offsets"] = [start + len(numbers), stop + len(numbers)]
    elif how == "negative":
        entry["data_offsets"] = [-start - 1, stop]
    elif how == "vast":
        entry["shape"] = draw.choice([[2**40, 2**40], [2**62, 4], [0, 2**63], [2**31] * 64, [10**4000]])
    elif how == "shape":
        entry["shape"] = draw.choice(
            [entry["shape"][::-1], [*entry["shape"], 1], [1] * 70, entry["shape"][1:]]
        )
    elif how == "dtype":
        entry["dtype"] = draw.choice(["F32", "I32", "F64", "BF16", "F8_E4M3", "BOOL", "U8", "object", ""])
    elif how == "turned":
        entry["data_offsets"] = [stop, start]
    else:
        header[draw.choice(["00", "a", "9" * 30, CODE[0]])] = header.pop(key)
    made = joined(header, numbers)
    try:
        return Damaged(sealed(made, described(data)), f"{how} of {key}, sealed", sealed=True)
    except (TypeError, ValueError):
        return Damaged(made, f"{how} of {key}")


def _twice(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    """A key that is there twice, in the header or in the description."""
    header, numbers = parts_of(data)
    text = header["__metadata__"]["tnshare"]
    pairs = list(json.loads(text).items())
    first, value = draw.choice(pairs)
    doubled = text[:-1] + f", {json.dumps(first)}: {json.dumps(draw.choice([value, *_ODD[:20]]))}}}"
    if draw.random() < 0.5:
        return Damaged(sealed(data, doubled), f"{first!r} twice in the description", sealed=True)
    raw, key = json.dumps(header), draw.choice(list(header))
    return Damaged(
        joined(raw[:-1] + f", {json.dumps(key)}: {json.dumps(header[key])}}}", numbers), f"{key} twice"
    )


def _deep(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    depth = draw.choice([10, 900, 5_000, 100_000])
    opened, closed = draw.choice([("[", "]"), ('{"a":', "}")])
    nest = opened * depth + "1" * (opened != "[") + closed * depth
    content = json.dumps(described(data))
    where = draw.choice(["entries", "format", "new", "header"])
    if where == "header":
        header, numbers = parts_of(data)
        return Damaged(joined(json.dumps(header)[:-1] + f', "x": {nest}}}', numbers), f"header {depth} deep")
    text = content[:-1] + f', "{where}": {nest}}}'
    return Damaged(sealed(data, text), f"{where} {depth} deep", sealed=True)


def _crowded(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    """Descriptions whose networks, lists or names are large enough for slow algorithms to show."""
    content, count = described(data), draw.choice([64, 65, 500, 3000])
    for node, key in _place(draw, content):
        if key == "entries" and isinstance(node[key], list) and node[key]:
            pattern, marks = draw.choice([("a{}", ""), ("k{}", ""), ("a", "'"), ("k", "_")])
            names = [pattern.format(n) + marks * min(n, 150) for n in range(count)]
            entry = next((e for e in node[key] if isinstance(e, dict) and "ranks" in e), node[key][0])
            if isinstance(entry, dict):
                ones = dict.fromkeys(names, 1)
                pairs = [[name, 1] for name in names]
                entry["weights"] = ones if isinstance(entry.get("weights"), dict) else pairs
                entry["ranks"] = [1] * (count + draw.choice([0, 1]))
                entry["method"] = draw.choice(["tucker", "tt", "laf"])
            if draw.random() < 0.2:
                node[key] *= 40
            break
    return Damaged(sealed(data, content), f"{count} axes", sealed=True)


def _swapped(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    other = draw.choice(others)
    (header, numbers), (theirs, their_numbers) = parts_of(data), parts_of(other)
    how = draw.choice(["metadata", "numbers", "table", "sealed"])
    if how == "metadata":
        return Damaged(
            joined({**header, "__metadata__": theirs["__metadata__"]}, numbers), "metadata swapped"
        )
    if how == "numbers":
        return Damaged(joined(header, their_numbers), "numbers swapped")
    if how == "table":
        return Damaged(
            joined({**theirs, "__metadata__": header["__metadata__"]}, their_numbers), "table swapped"
        )
    return Damaged(sealed(data, described(other)), "description swapped, sealed", sealed=True)


def _others(draw: random.Random, data: bytes, others: list[bytes]) -> Damaged:
    """Files of other makers."""
    import io
    import pickle
    import zipfile

    header, numbers = parts_of(data)
    bare = {key: value for key, value in header.items() if key != "__metadata__"}
    name = draw.choice(
        ["pickle", "zip", "npz", "bfloat16", "bare", "text", "json", "noise", "empty", "wide", "gguf"]
    )
    if name == "pickle":
        made = pickle.dumps({"model": [1, 2]})
    elif name in ("zip", "npz"):
        buffer = io.BytesIO()
        if name == "npz":
            np.savez(buffer, a=np.arange(9))
        else:
            with zipfile.ZipFile(buffer, "w") as archive:
                archive.writestr("model/data.pkl", pickle.dumps({"a": 1}))
        made = buffer.getvalue()
    elif name == "bfloat16":
        table = {"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}
        made = joined(table | draw.choice([{}, {"__metadata__": {"format": "pt"}}]), bytes(8))
    elif name == "bare":
        made = joined(
            bare | draw.choice([{}, {"__metadata__": {"format": "pt"}}, {"__metadata__": {}}]), numbers
        )
    elif name == "wide":
        many = {
            f"layers.{n}.w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(20_000)
        }
        made = joined(many, b"")
    elif name == "gguf":
        made = b"GGUF" + bytes(200)
    else:
        texts = {"text": b"# a file of words\n" * 9, "json": b'{"format": 2}', "empty": b""}
        made = texts.get(name, draw.randbytes(draw.choice([8, 100, 10_000])))
    return Damaged(made, f"somebody else's: {name}")


MUTATIONS: tuple[Mutation, ...] = (
    _flip, _flip_in_header, _cut, _longer, _moved, _length_field, _content, _content, _content,
    _content_unsealed, _named_code, _header, _offsets, _twice, _deep, _crowded, _swapped, _others,
)  # fmt: skip


def damaged(seed: int, data: bytes, others: list[bytes]) -> Damaged:
    """The file of a seed: the same at any time."""
    draw = random.Random(seed)
    mutation = MUTATIONS[seed % len(MUTATIONS)]
    found = mutation(draw, data, others)
    return Damaged(found.data, f"{mutation.__name__}: {found.mutation}", found.sealed)
