"""What a profile says an operation costs, how it is measured, and which device gets which."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.ops import numpy_ops
from tnshare.planning import PROFILES, Device, Profile, calibrate, cpu_model, measure, profile, profile_for
from tnshare.planning.devices import _cache_folder as store
from tnshare.planning.devices import _known_devices as profiles
from tnshare.planning.devices._profile import GRID, SIZES

CPU = PROFILES["cpu"]
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
HERE = Device("torch", "2.13", "cpu", "some processor", 1)
sizes = st.integers(1, 5000)
named = st.sampled_from(list(PROFILES.values()))
layouts = st.sampled_from(LAYOUTS)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path))
    profile_for.cache_clear()
    yield tmp_path
    profile_for.cache_clear()


@pytest.fixture(scope="module")
def measured():
    heard: list[tuple[int, int]] = []
    found = measure(numpy_ops, "here", seconds=0.02, progress=lambda done, total: heard.append((done, total)))
    return found, heard


def index(*shape: int) -> int:
    return int(np.ravel_multi_index([GRID.index(n) for n in shape], (len(GRID),) * 3))


@given(named, sizes, sizes, sizes, sizes, st.sampled_from([False, True, "left", "right"]), layouts)
def test_every_time_is_positive_finite_and_no_less_than_a_call(device, b, r, k, c, spread, turned):
    times = [device.product(b, r, k, c, spread, turned), device.outer(b, r, c), device.copy(b * r)]
    times.append(device.stream(b * r))
    assert all(device.call < seconds < math.inf for seconds in times)


@given(named, sizes, sizes, sizes, sizes, layouts)
def test_an_operand_that_is_the_same_for_all_items_is_never_dearer(device, b, r, k, c, turned):
    own = device.product(b, r, k, c, turned=turned)
    unknown = device.product(b, r, k, c, True, turned)
    known = [device.product(b, r, k, c, side, turned) for side in ("left", "right")]
    assert max(known) <= own * (1 + 1e-9)
    assert math.isclose(unknown, max(known))


def test_an_operand_that_is_read_once_saves_its_bytes():
    device = Profile.roofline("slow link", peak=1e15, bandwidth=1e9, call=1e-9, source="")
    own, left, right = (device.product(100, 1, 50, 70, spread) for spread in (False, "left", "right"))
    assert own == pytest.approx(4 * 100 * (50 + 3500 + 70) / 1e9, rel=1e-3)
    assert left == pytest.approx(4 * (50 + 100 * 3570) / 1e9, rel=1e-3)
    assert right == pytest.approx(4 * (3500 + 100 * 120) / 1e9, rel=1e-3)
    assert device.product(100, 1, 50, 70, True) == left


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 32, 512), (512, 512, 512), (8, 1, 32), (128, 2, 1)])
@pytest.mark.parametrize("batch", [1, 7])
def test_on_the_grid_a_profile_says_what_was_measured(batch, shape, turned):
    device = replace(CPU, bandwidth=(1e30,) * len(SIZES))
    table = (CPU.stacked if batch > 1 else CPU.single)[LAYOUTS.index(turned) * len(GRID) ** 3 :]
    expected = CPU.call + 2 * batch * math.prod(shape) / table[index(*shape)]
    assert math.isclose(device.product(batch, *shape, turned=turned), expected)


@given(st.sampled_from([1, 9]), sizes, sizes, sizes, layouts)
def test_between_the_points_of_the_grid_a_rate_lies_between_theirs(batch, r, k, c, turned):
    device = replace(CPU, bandwidth=(1e30,) * len(SIZES))
    table = (CPU.stacked if batch > 1 else CPU.single)[LAYOUTS.index(turned) * len(GRID) ** 3 :]
    around = []
    for size in (r, k, c):
        low = max(n for n, point in enumerate(GRID) if point <= size)
        around.append(GRID[low : low + 2])
    rates = [table[index(x, y, z)] for x in around[0] for y in around[1] for z in around[2]]
    rate = 2 * batch * r * k * c / (device.product(batch, r, k, c, turned=turned) - device.call)
    assert min(rates) * (1 - 1e-6) <= rate <= max(rates) * (1 + 1e-6)


def test_one_table_stands_for_all_orders_of_the_operands():
    one = replace(CPU, single=CPU.single[: len(GRID) ** 3], stacked=CPU.stacked[: len(GRID) ** 3])
    assert len({one.product(50, 64, 64, 1, turned=turned) for turned in LAYOUTS}) == 1
    assert len({CPU.product(50, 64, 64, 1, turned=turned) for turned in LAYOUTS}) == 4
    assert one.product(50, 64, 64, 1) == CPU.product(50, 64, 64, 1)


@pytest.mark.parametrize("place", range(len(SIZES)))
def test_passes_of_the_sizes_that_were_measured_take_what_was_measured(place):
    speeds = tuple(1e9 * (n + 1) for n in range(len(SIZES)))
    device = replace(CPU, bandwidth=speeds, turning=speeds[::-1])
    elements = SIZES[place] // 8
    assert device.copy(elements) == pytest.approx(CPU.call + SIZES[place] / speeds[::-1][place])
    elements = SIZES[place] // 12
    assert device.stream(elements) == pytest.approx(CPU.call + 12 * elements / speeds[place], rel=1e-2)


def test_beyond_the_sizes_that_were_measured_the_speed_stays():
    more = 100 * SIZES[-1]
    assert CPU.copy(more) - CPU.call == pytest.approx(2 * (CPU.copy(more // 2) - CPU.call))
    one = CPU.stream(1) - CPU.call
    assert CPU.stream(2) - CPU.call == pytest.approx(2 * one)


def test_stacks_of_thin_items_are_known_to_be_slow_and_orders_to_matter():
    assert CPU.product(64, 64, 64, 1) > 3 * CPU.product(64, 1, 64, 64)
    assert CPU.product(64, 64, 64, 1) > 3 * CPU.product(64, 64, 64, 1, turned=(False, True))


@given(named)
def test_a_profile_survives_json(device):
    assert Profile.from_json(json.loads(json.dumps(device.to_json()))) == device


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"call": "fast"}, r"a name and a source, and numbers otherwise: found \{'name'"),
        ({"call": True}, "numbers otherwise"),
        ({"call": 10**400}, "numbers otherwise"),
        ({"view": float("nan")}, "view not negative"),
        ({"name": 3}, "a name and a source"),
        ({"single": "12"}, "numbers otherwise"),
        ({"single": [None]}, "numbers otherwise"),
        ({"more": 1}, r"has the entries \['bandwidth', 'call', .*\]: found"),
        ({"call": 0.0}, r"call of the profile 'cpu' must be positive, view not negative: found call=0.0"),
        ({"call": math.nan}, "call of the profile"),
        ({"view": -1.0}, "view=-1.0"),
        (
            {"bandwidth": [1.0, 2.0]},
            r"bandwidth of the profile 'cpu' must be 7 positive numbers: found \(1.0, 2",
        ),
        ({"turning": [1.0] * 6 + [0.0]}, "turning of the profile 'cpu' must be 7 positive numbers"),
        ({"stacked": [1.0] * 217}, "stacked of the profile 'cpu' must be 216 or 864 positive numbers"),
        ({"single": [1.0] * 215 + [math.inf]}, "single of the profile 'cpu' must be 216 or 864 positive"),
    ],
)
def test_a_damaged_profile_is_refused(change, text):
    with pytest.raises(tn.TnshareError, match=text) as caught:
        Profile.from_json(CPU.to_json() | change)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", [None, [], "profile", {}, {"name": "x"}])
def test_what_is_no_profile_is_refused(value):
    with pytest.raises(tn.TnshareError, match="a profile has the entries"):
        Profile.from_json(value)


def test_a_measured_profile_knows_the_device(measured):
    found, heard = measured
    assert (found.name, found.source) == ("here", "measured")
    assert len(found.single) == len(found.stacked) == 4 * len(GRID) ** 3
    assert 0 < found.view < 1e-3
    assert found.product(1, 512, 512, 512) > 2 * found.product(1, 8, 8, 8)
    assert found.copy(2**22) > 2 * found.copy(2**10)
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] > 1000


class Counting:
    """NumPy that counts products of stacks."""

    def __init__(self):
        self.stacks = 0

    def __getattr__(self, name):
        return getattr(numpy_ops, name)

    def matmul(self, a, b):
        self.stacks += a.ndim == 3
        return np.matmul(a, b)


def test_where_programs_are_compiled_views_are_free_and_orders_the_compilers():
    ops, waited, compiled = Counting(), [], []

    def jit(function):
        compiled.append(function)
        return function

    found = measure(ops, "compiled", wait=waited.append, jit=jit, seconds=0.01)
    assert found.view == 0
    assert len(found.single) == len(found.stacked) == len(GRID) ** 3
    assert len(compiled) > 400
    assert len(waited) >= 2 * len(compiled)
    assert ops.stacks > 200


def test_a_device_that_nobody_knows_is_refused():
    with pytest.raises(
        tn.TnshareError,
        match=r"no device is called 'abacus': expected one of \('cpu', 'cpu-jax', 'laptop', 'a100'",
    ):
        profile("abacus")
    assert profile("h100").product(1, 4096, 4096, 4096) < CPU.product(1, 4096, 4096, 4096)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (HERE, "cpu"),
        (replace(HERE, framework="jax"), "cpu-jax"),
        (replace(HERE, kind="cuda", model="NVIDIA A100-SXM4-80GB"), "a100"),
        (replace(HERE, kind="cuda", model="another"), "a100"),
        (replace(HERE, kind="cuda", model="NVIDIA H100 80GB HBM3", framework="jax"), "h100"),
        (replace(HERE, model="not an A100"), "cpu"),
    ],
)
def test_a_device_that_was_never_measured_gets_a_named_profile(device, name):
    assert profile_for(device) is PROFILES[name]


def test_a_device_that_was_measured_gets_its_own_profile(measured, monkeypatch):
    monkeypatch.setattr(profiles, "measure", lambda ops, name, **_: replace(measured[0], name=name))
    assert profile_for(HERE) is CPU
    found = calibrate(numpy_ops, HERE)
    assert found.name == "torch 2.13, some processor, 1 thread(s)"
    assert profile_for(HERE) == found
    assert profile_for(HERE) is profile_for(replace(HERE))
    others = [
        {"version": "2.14"},
        {"threads": 2},
        {"model": "another"},
        {"framework": "numpy"},
    ]
    assert all(profile_for(replace(HERE, **other)) is CPU for other in others)


def test_calibrating_passes_on_how_to_measure(measured, monkeypatch):
    heard = {}

    def fake(ops, name, **options):
        heard.update(options, ops=ops)
        return measured[0]

    monkeypatch.setattr(profiles, "measure", fake)
    options = {"wait": print, "jit": repr, "seconds": 3, "progress": max}
    calibrate(numpy_ops, HERE, **options)
    assert heard == {**options, "ops": numpy_ops}


def test_a_damaged_profile_in_the_store_is_ignored(cache):
    for value in ({**CPU.to_json(), "call": -1.0}, {"name": "x"}, 3):
        store.write("profile", HERE.__dict__, value)
        profile_for.cache_clear()
        assert profile_for(HERE) is CPU
    store.write("profile", HERE.__dict__, replace(CPU, name="mine").to_json())
    assert profile_for(HERE) is CPU  # looked up once
    profile_for.cache_clear()
    assert profile_for(HERE).name == "mine"
    (path,) = cache.rglob("*.json")
    path.write_bytes(path.read_bytes()[:-100])
    profile_for.cache_clear()
    assert profile_for(HERE) is CPU


def test_the_model_of_the_processor_has_a_name_on_every_system(monkeypatch):
    assert cpu_model()
    texts = {"text": "processor : 0\nmodel name\t: Some CPU @ 3 GHz\nmodel name : other\n"}
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: texts["text"])
    assert cpu_model() == "Some CPU @ 3 GHz"
    texts["text"] = "Features : fp\nmodel name :\n"
    monkeypatch.setattr(platform, "processor", lambda: "a processor")
    assert cpu_model() == "a processor"
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert cpu_model() == "arm64"

    def refuse(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert cpu_model() == "arm64"
