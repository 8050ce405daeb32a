"""Misuse of the core's functions: decompose, compose, codes, layers as functions, the planner, the testing kit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from misused import catalogue, refused

import tnshare as tn
from tnshare.planning import PROFILES, Job, candidates, profile
from tnshare.testing import check_backend, check_law

NAN = math.nan


@pytest.fixture(scope="module")
def world() -> SimpleNamespace:
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((5, 4, 3))
    d = tn.decompose(stack, "tucker", ranks=(3, 2, 2))
    sites = tn.Tucker((2, 2, 2, 2)).network(i=4, o=3, site=2, user=3, tasks=("site", "user"))
    layer = tn.Linear(5, 4, tasks=3, spec=tn.Tucker((3, 2, 2)))
    conv, table = tn.Conv(2, 4, (3, 3), 3, tn.LAF(2)), tn.Embedding(7, 4, 3, tn.LAF(2))
    return SimpleNamespace(
        stack=stack, d=d, network=d.network, factors=dict(d.factors),
        sites=sites, site_factors=tn.random_factors(sites, variance=1.0),
        layer=layer, params=layer.init(), x=rng.standard_normal((6, 5)).astype(np.float32),
        ids=np.array([0, 1, 2, 2, 1, 0]),
        conv=conv, conv_params=conv.init(), images=np.ones((6, 2, 5, 5), np.float32),
        table=table, table_params=table.init(), tokens=np.array([0, 6, 3]),
        pairs=tn.Linear(4, 3, {"site": 2, "user": 3}, tn.LAF(2)),
    )  # fmt: skip


def decompose(*args, **keywords):
    return lambda w: tn.decompose(w.stack, *(args or ("tucker",)), **keywords)


def decomposed(change, **keywords):
    """What is made of the stack."""
    return lambda w: tn.decompose(change(w.stack), "tucker", **keywords)


def compose(**factors):
    """With factors in the place of others; None takes one away."""
    return lambda w: tn.compose(
        w.network, {k: v for k, v in {**w.factors, **factors}.items() if v is not None}
    )


def composed(task):
    return lambda w: tn.compose(w.network, w.factors, task)


def codes(**keywords):
    return lambda w: tn.codes(w.network, w.factors, **keywords)


def apply(task=None, x=lambda w: w.x, params=lambda w: w.params, **keywords):
    return lambda w: tn.apply(w.layer, params(w), x(w), task, **keywords)


def without(name):
    return lambda w: {key: value for key, value in w.params.items() if key != name}


def spoilt(place, value):
    """The stack with another number in one place."""

    def change(stack):
        stack = stack.copy()
        stack[place] = value
        return stack

    return change


def rates(**changed):
    cpu = PROFILES["cpu"].to_json()
    return lambda w: tn.Profile.from_json({**cpu, **changed})


DECOMPOSE = catalogue(
    ("decompose by an unknown method", r"method must be one of \('laf', 'tucker', 'tt'\): found 'cp'", decompose("cp")),
    ("decompose by a method in capitals", r"method must be one of .*: found 'TUCKER'", decompose("TUCKER")),
    ("decompose by no method", r"method must be one of .*: found None", decompose(None)),
    ("decompose by an instance", r"method must be one of .*: found LAF\(2\)", decompose(tn.LAF(2))),
    ("decompose by the base of all", r"method must be one of .*: found .*Spec", decompose(tn.Spec)),
    ("decompose by a list of methods", r"method must be one of .*: found \['tt'\]", decompose(["tt"])),
    ("decompose without a method", r"method", lambda w: tn.decompose(w.stack), TypeError),
    ("decompose with eps=1", r"eps must be .*< 1: found 1", decompose(eps=1)),
    ("decompose with a negative eps", r"eps must be .*: found -0\.1", decompose(eps=-0.1)),
    ("decompose with eps=NaN", r"eps must be .*: found nan", decompose(eps=NAN)),
    ("decompose with an infinite eps", r"eps must be .*: found inf", decompose(eps=math.inf)),
    ("decompose with eps=True", r"eps must be .*: found True", decompose(eps=True)),
    ("decompose with eps in words", r"eps must be .*: found '0\.1'", decompose(eps="0.1")),
    ("decompose with a complex eps", r"eps must be .*: found .*1\+1j", decompose(eps=np.complex64(1 + 1j))),
    ("decompose with a list of eps", r"eps must be .*: found \[0\.1\]", decompose(eps=[0.1])),
    ("decompose with eps and ranks", r"exclude each other: found eps=0\.1 and ranks=\(1, 1, 1\)", decompose(eps=0.1, ranks=(1, 1, 1))),
    ("decompose with eps and max_parameters", r"exclude each other: found eps=0\.1 and max_parameters=9", decompose(eps=0.1, max_parameters=9)),
    ("decompose with ranks too few", r"takes 3 ranks .*: found 2", decompose(ranks=(2, 2))),
    ("decompose with ranks too many", r"takes 3 ranks .*: found 4", decompose(ranks=(2, 2, 2, 2))),
    ("decompose with ranks too large", r"rank k_d1=6 is out of range: expected 1 <= k_d1 <= 4", decompose(ranks=(6, 2, 2))),
    ("decompose with ranks of 0", r"ranks must be whole numbers of at least 1: found \(0, 2, 2\)", decompose(ranks=(0, 2, 2))),
    ("decompose with empty ranks", r"ranks must be whole numbers of at least 1: found \[\]", decompose(ranks=[])),
    ("decompose with ranks in words", r"ranks must be whole numbers.*found 'auto'", decompose(ranks="auto")),
    ("decompose with a set of ranks", r"ranks must be.*found \{", decompose(ranks={2, 3})),
    ("decompose with max_parameters=0", r"max_parameters.*found 0", decompose(max_parameters=0)),
    ("decompose with max_parameters too few", r"max_parameters.*at least \d+", decompose(max_parameters=3)),
    ("decompose with max_parameters=0.5", r"max_parameters.*found 0\.5", decompose(max_parameters=0.5)),
    ("decompose with max_parameters=True", r"max_parameters.*found True", decompose(max_parameters=True)),
    ("decompose relative to the mean", r"relative_to must be 'stack' or 'deviation': found 'mean'", decompose(relative_to="mean")),
    ("decompose relative to, with ranks", r"relative_to and eps_rule go with eps: found ranks", decompose(ranks=(1, 1, 1), relative_to="deviation")),
    ("decompose by an unknown rule", r"eps_rule must be 'split' or 'per_svd': found 'all'", decompose(eps_rule="all")),
    ("decompose, refining a TT", r"refine=True is for method='tucker': found method='tt'", decompose("tt", refine=True)),
    ("decompose, refining in words", r"refine must be True or False: found 'no'", decompose(refine="no")),
    ("decompose with axes too few", r"axes must name each of the 3 axes of the stack once.*: found \('i', 'task'\)", decompose(axes=("i", "task"))),
    ("decompose with an axis twice", r"axes must name each .* once.*: found", decompose(axes=("i", "i", "task"))),
    ("decompose with axes in a string", r"axes must .*: found 'iot'", decompose(axes="iot")),
    ("decompose with a number of axes", r"axes must .*: found 3", decompose(axes=3)),
    ("decompose with a set of axes", r"axes must .*: found \{", decompose(axes={"a"})),
    ("decompose with axes that are numbers", r"axes must .*: found \(0, 1, 2\)", decompose(axes=(0, 1, 2))),
    ("decompose with the tasks before the end", r"axes must name .*: found \('task', 'i', 'o'\)", decompose(axes=("task", "i", "o"))),
    ("decompose with tasks=3", r"tasks must name the task axes: found 3", decompose(tasks=3)),
    ("decompose with tasks of other names", r"axes must name .*task axes \('site',\) last", decompose(axes=("i", "o", "task"), tasks=("site",))),
    ("decompose what has NaN in it", r"a stack must be finite: found nan at \(1, 2, 0\)", decomposed(spoilt((1, 2, 0), NAN))),
    ("decompose what is infinite", r"a stack must be finite: found -inf at \(0, 0, 2\)", decomposed(spoilt((0, 0, 2), -math.inf))),
    ("decompose whole numbers", r"a stack must be float16.*: found int64; convert it first", decomposed(lambda s: s.astype(int))),
    ("decompose truth values", r"a stack must be float16.*: found bool", decomposed(lambda s: s > 0)),
    ("decompose objects", r"a stack must be float16.*: found object", decomposed(lambda s: s.astype(object))),
    ("decompose words", r"a stack must be .*: found <U", decomposed(lambda s: "weights")),
    ("decompose None", r"a stack must be .*: found object", decomposed(lambda s: None)),
    ("decompose a masked array", r"found a masked array; fill it first", decomposed(lambda s: np.ma.masked_array(s, s > 0))),
    ("decompose a ragged list", r"must be an array that NumPy can read", decomposed(lambda s: [[1.0], [1.0, 2.0]])),
    ("decompose a vector", r"at least one weight axis, then 1 of tasks, .*: found shape \(5,\)", decomposed(lambda s: s[:, 0, 0])),
    ("decompose one number", r"at least one weight axis, .*: found shape \(\)", decomposed(lambda s: s[0, 0, 0])),
    ("decompose no tasks", r"none of them empty: found shape \(5, 4, 0\)", decomposed(lambda s: s[..., :0])),
    ("decompose a dict of weights", r"a stack must be .*: found", decomposed(lambda s: {"weight": s})),
    ("decompose a generator", r"a stack must be .*: found", decomposed(lambda s: (row for row in s))),
)  # fmt: skip

COMPOSE = catalogue(
    ("compose without a factor", r"the factor 'U_i' is missing|the factor 'U_d1' is missing: expected \('core'", compose(U_d1=None)),
    ("compose with a factor too large", r"the factor U_d1.* must have shape \(5, 3\): found \(5, 5\)", compose(U_d1=np.ones((5, 5)))),
    ("compose with a factor of one number", r"must have shape \(5, 3\): found a float, not an array", compose(U_d1=1.0)),
    ("compose with a factor in a list", r"must have shape \(5, 3\): found a list, not an array", compose(U_d1=[[1.0] * 3] * 5)),
    ("compose with a factor of objects", r"must .*numbers.*: found .*object", compose(U_d1=np.ones((5, 3), object))),
    ("compose with a factor of words", r"must .*numbers.*: found .*<U1", compose(U_d1=np.full((5, 3), "a"))),
    ("compose with a masked factor", r"must .*: found .*masked", compose(U_d1=np.ma.masked_array(np.ones((5, 3)), True))),
    ("compose with a list of factors", r"factors must be a dict.*: found list", lambda w: tn.compose(w.network, list(w.factors.values()))),
    ("compose with no factors", r"factors must be a dict.*: found NoneType", lambda w: tn.compose(w.network, None)),
    ("compose a specification", r"network must be a tnshare\.Network.*: found Tucker", lambda w: tn.compose(tn.Tucker((3, 2, 2)), w.factors)),
    ("compose a decomposition", r"network must be a tnshare\.Network.*: found Decomposition", lambda w: tn.compose(w.d, w.factors)),
    ("compose a task out of range", r"task 3 is out of range: expected 0 <= task <= 2", composed(3)),
    ("compose a negative task", r"task -1 is out of range: expected 0 <= task <= 2", composed(-1)),
    ("compose a task of 1.0", r"task ids must be whole numbers: found dtype float64", composed(1.0)),
    ("compose task True", r"task ids must be whole numbers: found dtype bool", composed(True)),
    ("compose task NaN", r"task ids must be whole numbers: found dtype float64", composed(NAN)),
    ("compose a task by name", r"task ids must be whole numbers: found dtype .*<?U?|str", composed("1")),
    ("compose a huge task", r"out of range|whole numbers", composed(10**30)),
    ("compose tasks of two axes", r"array of shape \(rows,\): found shape \(1, 2\)", composed([[0, 1]])),
    ("compose ragged tasks", r"ids in rows alike: found \[\[0\], \[0, 1\]\]", composed([[0], [0, 1]])),
    ("compose a set of tasks", r"task.*: found .*(set|object|\{)", composed({0, 1})),
    ("compose a dict of tasks", r"task.*: found .*(dict|object|\{)", composed({0: 1})),
    ("compose tasks of objects", r"task ids must be whole numbers: found dtype object", composed(np.array([0, 1], object))),
    ("compose masked tasks", r"masked", composed(np.ma.masked_array([0, 1], [False, True]))),
    ("compose by a truth table", r"task ids must be whole numbers: found dtype bool", composed(np.array([True, False, True]))),
    ("compose one of two task axes", r"a task must be 2 whole numbers", lambda w: tn.compose(w.sites, w.site_factors, 1)),
    ("compose a pair out of range", r"user 3 is out of range: expected 0 <= user <= 2", lambda w: tn.compose(w.sites, w.site_factors, (1, 3))),
    ("compose in what is no framework", r"ops .*: found 'numpy'", lambda w: tn.compose(w.network, w.factors, ops="numpy")),
    ("codes in an unknown gauge", r"gauge must be 'paper' or 'stored': found 'Paper'", codes(gauge="Paper")),
    ("codes of an unknown axis", r"axis must be one of the task axes \('task',\): found 'site'", codes(axis="site")),
    ("codes of two axes at once", r"say which with axis=", lambda w: tn.codes(w.sites, w.site_factors)),
    ("codes of no factors", r"the factor 'core' is missing", lambda w: tn.codes(w.network, {})),
    ("codes of factors in a list", r"factors must be a dict.*: found list", lambda w: tn.codes(w.network, list(w.factors.values()))),
    ("codes of NaN factors", r"must be finite: found NaN", lambda w: tn.codes(w.network, {**w.factors, "U_task": w.factors["U_task"] * NAN})),
    ("codes of factors that are words", r"must .*numbers", lambda w: tn.codes(w.network, {**w.factors, "U_task": np.full((3, 2), "a")})),
    ("codes of a layer", r"network must be a tnshare\.Network.*: found Linear", lambda w: tn.codes(w.layer, w.params)),
    ("sharing strength of a vector", r"codes must be a finite K x T matrix: found float64 of shape \(3,\)", lambda w: tn.sharing_strength(np.ones(3))),
    ("sharing strength of NaN", r"codes must be a finite K x T matrix", lambda w: tn.sharing_strength(np.full((2, 3), NAN))),
    ("sharing strength of words", r"codes must be a finite K x T matrix: found <U", lambda w: tn.sharing_strength("codes")),
    ("sharing strength of ragged codes", r"codes must be a finite K x T matrix: found", lambda w: tn.sharing_strength([[1.0], [1.0, 2.0]])),
    ("sharing strength of masked codes", r"codes .*masked", lambda w: tn.sharing_strength(np.ma.masked_array(np.ones((2, 3)), True))),
    ("sharing strength of one task", r"codes of at least 2, found 1", lambda w: tn.sharing_strength(np.ones((2, 1)))),
    ("sharing strength of a network", r"codes must be a finite K x T matrix: found object", lambda w: tn.sharing_strength(w.network)),
    ("sharing strength, normalised in words", r"normalise must be True or False: found 'no'", lambda w: tn.sharing_strength(np.ones((2, 3)), normalise="no")),
    ("task similarity of a missing factor", r"the factor 'core' is missing", lambda w: tn.task_similarity(w.network, {"U_task": w.factors["U_task"]})),
    ("task similarity of None", r"network must be a tnshare\.Network.*: found NoneType", lambda w: tn.task_similarity(None, w.factors)),
    ("task similarity of infinite factors", r"must be finite: found NaN or infinity", lambda w: tn.task_similarity(w.network, {**w.factors, "core": w.factors["core"] + math.inf})),
    ("random factors of variance 0", r"variance must be a positive number: found 0", lambda w: tn.random_factors(w.network, variance=0)),
    ("random factors of variance NaN", r"variance must be a positive number: found nan", lambda w: tn.random_factors(w.network, variance=NAN)),
    ("random factors of variance True", r"variance must be a positive number: found True", lambda w: tn.random_factors(w.network, variance=True)),
    ("random factors of complex variance", r"variance must be a positive number: found .*1j", lambda w: tn.random_factors(w.network, variance=np.complex64(1j))),
    ("random factors of a negative seed", r"a seed must be .*: found -1", lambda w: tn.random_factors(w.network, variance=1.0, seed=-1)),
    ("random factors with an unknown frozen one", r"the frozen factor 'V' .*: see network\.shapes", lambda w: tn.random_factors(w.network, variance=1.0, frozen={"V": np.ones(2)})),
    ("random factors of a specification", r"network must be a tnshare\.Network.*: found Tucker", lambda w: tn.random_factors(tn.Tucker((3, 2, 2)), variance=1.0)),
    ("decomposed factors of another network", r"the network is not one of LAF\(2\): found", lambda w: tn.decomposed_factors(tn.LAF(2), w.network, variance=1.0)),
    ("decomposed factors of frozen codes", r"frozen codes leave nothing to decompose", lambda w: tn.decomposed_factors(tn.LAF.single_task(3), tn.LAF.single_task(3).network(i=5, task=3), variance=1.0)),
)  # fmt: skip

LAYERS = catalogue(
    ("apply to features too few", r"expected x of shape \(\.\.\., 5\).*: found \(6, 4\)", apply(1, lambda w: w.x[:, :4])),
    ("apply to one number", r"expected x of shape \(\.\.\., 5\).*: found \(\)", apply(1, lambda w: w.x[0, 0])),
    ("apply to a list", r"x must be an array: found list", apply(1, lambda w: w.x.tolist())),
    ("apply to None", r"x must be an array: found NoneType", apply(1, lambda w: None)),
    ("apply to objects", r"x must be .*numbers.*: found .*object", apply(1, lambda w: w.x.astype(object))),
    ("apply to words", r"x must be .*numbers.*: found .*<U", apply(1, lambda w: w.x.astype(str))),
    ("apply to a masked array", r"x must .*: found .*masked", apply(1, lambda w: np.ma.masked_array(w.x, w.x > 0))),
    ("apply to too few tasks", r"row t of x belongs to task t: expected x of shape \(3, \.\.\., 5\), found \(6, 5\); give a task", apply()),
    ("apply with ids too few", r"one task id for each row: expected x of shape \(5, \.\.\., 5\) with 5 ids, found \(6, 5\)", apply([0, 1, 2, 0, 1])),
    ("apply with ids out of range", r"task 3 in row 1 is out of range: expected 0 <= task <= 2", apply([0, 3, 2, 0, 1, 1])),
    ("apply with ids that are negative", r"task -1 in row 5 is out of range", apply([0, 1, 2, 0, 1, -1])),
    ("apply with ids that are floats", r"task ids must be whole numbers: found dtype float64", apply(np.ones(6))),
    ("apply with ids in columns", r"array of shape \(rows,\): found shape \(6, 1\)", apply(np.ones((6, 1), int))),
    ("apply with ids that are None", r"task.*whole number.*: found .*(object|None)", apply([None] * 6)),
    ("apply with ids in a generator", r"task.*: found .*(object|generator)", apply(n for n in range(6))),
    ("apply a class", r"expected a description such as tnshare\.Linear: found", lambda w: tn.apply(tn.Linear, w.params, w.x, 1)),
    ("apply parameters", r"expected a description such as tnshare\.Linear: found builtins\.dict", lambda w: tn.apply(w.params, w.layer, w.x, 1)),
    ("apply without parameters", r"expected params by name, a dict with .*'core'.*: found NoneType", apply(1, params=lambda w: None)),
    ("apply with a list of parameters", r"expected params by name.*: found list", apply(1, params=lambda w: list(w.params.values()))),
    ("apply without a bias", r"expected params\['bias'\] of shape \(3, 4\)", apply(1, params=without("bias"))),
    ("apply with a bias of another shape", r"expected params\['bias'\] of shape \(3, 4\)", apply(1, params=lambda w: {**w.params, "bias": np.ones(4)})),
    ("apply with a bias in a list", r"expected params\['bias'\] of shape \(3, 4\).*found list", apply(1, params=lambda w: {**w.params, "bias": [0.0]})),
    ("apply without a factor", r"the factor 'core' is missing", apply(1, params=without("core"))),
    ("apply with parameters of another layer", r"the factor 'core' is missing", lambda w: tn.apply(w.layer, {**w.conv_params, "bias": w.params["bias"]}, w.x, 1)),
    ("apply with training in words", r"training must be True or False: found 'yes'", apply(1, training="yes")),
    ("apply in what is no framework", r"ops .*: found", apply(1, ops=np)),
    ("apply one task of pairs", r"a task must be 2 whole numbers, task ids an array of shape \(rows, 2\)", lambda w: tn.apply(w.pairs, w.pairs.init(), w.x[:, :4], 1)),
    ("fan out without features", r"expected x of shape", lambda w: tn.fan_out(w.layer, w.params, w.x[:, :2])),
    ("fan out a list", r"x must be an array: found list", lambda w: tn.fan_out(w.layer, w.params, [1.0] * 5)),
    ("fan out parameters lacking one", r"the factor 'U_i' is missing", lambda w: tn.fan_out(w.layer, without("U_i")(w), w.x)),
    ("weight of a task out of range", r"task 9 is out of range", lambda w: tn.weight(w.layer, w.params, 9)),
    ("weight of no parameters", r"params by name.*: found NoneType", lambda w: tn.weight(w.layer, None)),
    ("weight of empty parameters", r"the factor 'core' is missing", lambda w: tn.weight(w.layer, {})),
    ("weight of a network", r"expected a description such as tnshare\.Linear: found", lambda w: tn.weight(w.network, w.params)),
    ("a convolution of vectors", r"expected x of shape", lambda w: tn.apply(w.conv, w.conv_params, w.x, 1)),
    ("a convolution of other channels", r"expected x of shape|channels", lambda w: tn.apply(w.conv, w.conv_params, w.images[:, :1], 1)),
    ("a convolution of images smaller than its kernel", r"kernel|places", lambda w: tn.apply(w.conv, w.conv_params, w.images[..., :2], 1)),
    ("an embedding of floats", r"x must be whole numbers, the rows of the table: found dtype float64", lambda w: tn.apply(w.table, w.table_params, w.tokens * 1.0, 1)),
    ("an embedding of tokens out of range", r"x has 7, which is out of range: expected 0 <= x <= 6", lambda w: tn.apply(w.table, w.table_params, w.tokens + 1, 1)),
    ("an embedding of negative tokens", r"x has -1, which is out of range", lambda w: tn.fan_out(w.table, w.table_params, w.tokens - 1)),
    ("an embedding of truth values", r"x must be whole numbers.*: found dtype bool", lambda w: tn.apply(w.table, w.table_params, w.tokens > 1, 1)),
)  # fmt: skip

PLANNER = catalogue(
    ("candidates of a layer", r"job must be .*: found Linear", lambda w: candidates(w.layer, PROFILES["cpu"])),
    ("candidates of an unknown way", r"way must be one of .*: found 'fanout'", lambda w: candidates(Job(w.layer.network, "fanout", 3), PROFILES["cpu"])),
    ("candidates of a negative batch", r"batch must be .*: found -2", lambda w: candidates(Job(w.layer.network, "one", -2), PROFILES["cpu"])),
    ("candidates of a batch of NaN", r"batch must be .*: found nan", lambda w: candidates(Job(w.layer.network, "one", NAN), PROFILES["cpu"])),
    ("candidates with the name of a profile", r"must be a tnshare.Profile, .*: found 'cpu'", lambda w: candidates(Job(w.layer.network, "one", 2), "cpu")),
    ("candidates in an unknown form", r"form must be one of .*'materialised'.*: found 'materialized'", lambda w: candidates(Job(w.layer.network, "one", 2), PROFILES["cpu"], "materialized")),
    ("an unknown profile", r"no device is called 'gpu': expected one of", lambda w: profile("gpu")),
    ("a profile of no name", r"no device is called None", lambda w: profile(None)),
    ("a profile with numbers too few", r"bandwidth of the profile 'cpu' must be 7 positive numbers", rates(bandwidth=[1.0])),
    ("a profile with a rate of 0", r"single of the profile .* positive numbers", rates(single=[0.0] * 216)),
    ("a profile with NaN", r"call of the profile 'cpu' must be positive.*found call=nan", rates(call=NAN)),
    ("a profile with words", r"a profile has a name and a source, and numbers otherwise", rates(call="fast")),
    ("a profile of nothing", r"a profile has the entries .*: found \{\}", lambda w: tn.Profile.from_json({})),
    ("a roofline of no bandwidth", r"bandwidth of the profile 'x' must be", lambda w: tn.Profile.roofline("x", peak=1e12, bandwidth=0, call=1e-6, source="")),
    ("a roofline of words", r"call of the profile 'x' must be.*found call='1'", lambda w: tn.Profile.roofline("x", peak=1e12, bandwidth=1e9, call="1", source="")),
    ("an unknown backend", r"no backend is called 'tensorflow': expected one of .*'torch'", lambda w: tn.backends.load("tensorflow")),
    ("a backend of no name", r"no backend is called None", lambda w: tn.backends.load(None)),
    ("a backend in a list", r"no backend is called \['torch'\]", lambda w: tn.backends.load(["torch"])),
    ("the laws of a backend's name", r"ops .*: found 'torch'", lambda w: check_backend("torch")),
    ("the laws of a module", r"ops .*: found <module 'numpy'", lambda w: check_backend(np)),
    ("the laws in a dtype that is none", r"dtypes must be some of .*: found \['float31'\]", lambda w: check_backend(tn.ops.numpy_ops, dtypes=["float31"])),
    ("the laws in a dtype in a string", r"dtypes must be a list.*: found 'float32'", lambda w: check_backend(tn.ops.numpy_ops, dtypes="float32")),
    ("the laws in no dtype", r"dtypes must be .*: found \(\)", lambda w: check_backend(tn.ops.numpy_ops, dtypes=())),
    ("the laws on no examples", r"max_examples must be .*: found 0", lambda w: check_backend(tn.ops.numpy_ops, max_examples=0)),
    ("the laws on half an example", r"max_examples must be .*: found 0\.5", lambda w: check_backend(tn.ops.numpy_ops, max_examples=0.5)),
    ("a law that is none", r"law must be one of .*LAWS.*: found 'gauge'", lambda w: check_law(tn.ops.numpy_ops, "gauge")),
)  # fmt: skip


@DECOMPOSE
def test_decompose(misuse, world):
    refused(misuse, world)


@COMPOSE
def test_compose_and_codes(misuse, world):
    refused(misuse, world)


@LAYERS
def test_layers_as_functions(misuse, world):
    refused(misuse, world)


@PLANNER
def test_planner_and_testing_kit(misuse, world):
    refused(misuse, world)
