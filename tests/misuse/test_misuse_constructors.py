"""Misuse of what describes: factorisations, networks, layers."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from misused import catalogue, refused

import tnshare as tn

NAN = math.nan


@pytest.fixture(scope="module")
def world() -> SimpleNamespace:
    network = tn.Tucker((3, 2, 2)).network(i=5, o=4, task=3)
    return SimpleNamespace(
        network=network, layer=tn.Linear(5, 4, 3, tn.LAF(2)), codes=np.ones((2, 3)), node=network.nodes[0]
    )


def linear(given=5, out=4, tasks=3, spec=None, **more):
    return lambda w: tn.Linear(given, out, tasks, tn.LAF(2) if spec is None else spec, **more)


def conv(given=2, out=4, kernel=(3, 3), tasks=3, spec=None, **more):
    return lambda w: tn.Conv(given, out, kernel, tasks, tn.LAF(2) if spec is None else spec, **more)


def embedding(count=7, dim=4, tasks=3, spec=None, **more):
    return lambda w: tn.Embedding(count, dim, tasks, tn.LAF(2) if spec is None else spec, **more)


def network(spec, *args, **sizes):
    return lambda w: spec.network(*args, **sizes)


def nodes(*made, output=("i", "task"), tasks=("task",)):
    return lambda w: tn.Network(tuple(tn.Node(*one) for one in made), output, tasks)


A, B = ("A", ("k", "i"), (2, 5)), ("B", ("task", "k"), (3, 2))

SPECS = catalogue(
    ("LAF of rank 0", r"LAF ranks must be whole numbers of at least 1: found 0", lambda w: tn.LAF(0)),
    ("LAF of a negative rank", r"at least 1: found -3", lambda w: tn.LAF(-3)),
    ("LAF of True", r"whole numbers of at least 1: found True", lambda w: tn.LAF(True)),
    ("LAF of a float", r"whole numbers of at least 1: found 2\.0", lambda w: tn.LAF(2.0)),
    ("LAF of NaN", r"whole numbers of at least 1: found nan", lambda w: tn.LAF(NAN)),
    ("LAF of infinity", r"whole numbers of at least 1: found inf", lambda w: tn.LAF(math.inf)),
    ("LAF of None", r"whole numbers of at least 1: found None", lambda w: tn.LAF(None)),
    ("LAF of a string", r"whole numbers of at least 1: found '4'", lambda w: tn.LAF("4")),
    ("LAF of two ranks", r"LAF takes one rank: found \(2, 3\)", lambda w: tn.LAF((2, 3))),
    ("LAF of a NumPy float", r"whole numbers of at least 1: found .*2\.0", lambda w: tn.LAF(np.float64(2))),
    ("LAF of NumPy's True", r"whole numbers of at least 1: found .*True", lambda w: tn.LAF(np.True_)),
    ("LAF of a class", r"whole numbers of at least 1: found <class 'int'>", lambda w: tn.LAF(int)),
    ("LAF with plain codes", r"FrozenCodes: .*use LAF\.with_codes\(array\)", lambda w: tn.LAF(2, w.codes)),
    ("LAF with fewer codes than ranks", r"rank k=3 does not fit 1 rows", lambda w: tn.LAF(3, tn.FrozenCodes.ones())),
    ("LAF with no rank", r"rank", lambda w: tn.LAF(), TypeError),
    ("codes that are a vector", r"real K x T matrix: found float64 \(3,\)", lambda w: tn.LAF.with_codes(np.ones(3))),
    ("codes of NaN", r"must be finite: found NaN", lambda w: tn.LAF.with_codes(w.codes * NAN)),
    ("codes that are complex", r"real K x T matrix: found complex", lambda w: tn.LAF.with_codes(w.codes + 1j)),
    ("codes of objects", r"real K x T matrix: found object", lambda w: tn.LAF.with_codes(w.codes.astype(object))),
    ("codes that are ragged", r"real K x T matrix: found", lambda w: tn.LAF.with_codes([[1.0], [1.0, 2.0]])),
    ("codes that are masked", r"masked", lambda w: tn.LAF.with_codes(np.ma.masked_array(w.codes, w.codes > 0))),
    ("codes that are empty", r"real K x T matrix: found .*\(0, 3\)", lambda w: tn.LAF.with_codes(np.ones((0, 3)))),
    ("codes of an unknown kind", r"kind 'eye' are not known: expected one of .*'identity'", lambda w: tn.FrozenCodes("eye", 2)),
    ("given codes whose bytes do not fit", r"2 rows", lambda w: tn.FrozenCodes("given", 2, b"abc")),
    ("single tasks of no tasks", r"tasks must be a whole number of at least 1: found 0", lambda w: tn.LAF.single_task(0)),
    ("single tasks of a string", r"tasks must be a whole number.*found '3'", lambda w: tn.LAF.single_task("3")),
    ("mean and deviations of None", r"tasks must be a whole number.*found None", lambda w: tn.LAF.evgeniou_pontil(None)),
    ("Tucker of no ranks", r"Tucker ranks must be whole numbers of at least 1: found \(\)", lambda w: tn.Tucker(())),
    ("Tucker of a rank of 0", r"at least 1: found \(2, 0, 2\)", lambda w: tn.Tucker((2, 0, 2))),
    ("Tucker of a string", r"at least 1: found '222'", lambda w: tn.Tucker("222")),
    ("Tucker of a set, which has no order", r"at least 1: found \{", lambda w: tn.Tucker({2, 3, 4})),
    ("Tucker of a dict", r"at least 1: found \{", lambda w: tn.Tucker({"i": 2, "o": 2})),
    ("Tucker of a used generator", r"at least 1: found", lambda w: tn.Tucker(r for r in ())),
    ("Tucker of nested ranks", r"at least 1: found \(\(2, 2\), 2\)", lambda w: tn.Tucker(((2, 2), 2))),
    ("TT of an array of floats", r"at least 1: found array", lambda w: tn.TT(np.array([2.0, 2.0]))),
    ("TT of a matrix", r"at least 1: found array", lambda w: tn.TT(np.ones((2, 2), int))),
    ("TT of None", r"at least 1: found None", lambda w: tn.TT(None)),
    ("Tucker with too few ranks", r"takes 3 ranks \(k_i, k_o, k_task\): found 2, \(2, 2\)", network(tn.Tucker((2, 2)), i=5, o=4, task=3)),
    ("TT with too many ranks", r"takes 2 ranks \(r_i, r_o\): found 3", network(tn.TT((2, 2, 2)), i=5, o=4, task=3)),
    ("LAF with too large a rank", r"LAF rank k=40 is out of range: expected 1 <= k <= 3", network(tn.LAF(40), i=5, o=4, task=3)),
    ("Tucker with too large a rank", r"rank k_i=9 is out of range: expected 1 <= k_i <= 4", network(tn.Tucker((9, 2, 2)), i=5, o=4, task=3)),
    ("TT with a huge rank", r"rank r_i=1000000+ is out of range: expected 1 <= r_i <= 5", network(tn.TT((10**30, 2)), i=5, o=4, task=3)),
    ("a network of the task axis alone", r"at least one weight axis and one task axis: found \('task',\)", network(tn.LAF(2), task=3)),
    ("a network of no axes", r"at least one weight axis and one task axis: found \(\)", network(tn.LAF(2))),
    ("a network with the tasks first", r"task axes come last: found the axes \('task', 'i'\)", network(tn.LAF(2), task=3, i=5)),
    ("a network with an axis of 0", r"size of axis 'i' must be a whole number of at least 1: found 0", network(tn.LAF(2), i=0, task=3)),
    ("a network with an axis of 2.0", r"size of axis 'i' must be.*found 2\.0", network(tn.LAF(2), i=2.0, task=3)),
    ("a network with an axis of True", r"size of axis 'task' must be.*found True", network(tn.LAF(1), i=2, task=True)),
    ("a network with unknown task axes", r"task axes come last: .*\('site',\)", network(tn.LAF(2), tasks=("site",), i=5, task=3)),
    ("a network with tasks=3", r"tasks must name the task axes: found 3", network(tn.LAF(2), tasks=3, i=5, task=3)),
    ("a network with a set of task axes", r"tasks must name the task axes: found \{", network(tn.LAF(2), tasks={"task"}, i=5, task=3)),
    ("a network with an empty list of task axes", r"at least one task axis|task axes come last", network(tn.LAF(2), tasks=(), i=5, task=3)),
    ("a network by position", r"positional", network(tn.LAF(2), 5, 3), TypeError),
    ("a node with more axes than sizes", r"node A has 2 axes .* but shape \(2,\)", lambda w: tn.Node("A", ("i", "k"), (2,))),
    ("a node that has an axis twice", r"node A names an axis twice: \('i', 'i'\)", lambda w: tn.Node("A", ("i", "i"), (2, 2))),
    ("a node of a negative size", r"size of axis 'i' of node A must be.*found -1", lambda w: tn.Node("A", ("i",), (-1,))),
    ("a node of size NaN", r"size of axis 'i' of node A must be.*found nan", lambda w: tn.Node("A", ("i",), (NAN,))),
    ("a node whose axes are a number", r"the axes of a node must be a list of names: found 3", lambda w: tn.Node("A", 3, (2,))),
    ("a node whose axes are a string", r"the axes of a node must be a list of names: found 'ij'", lambda w: tn.Node("A", "ij", (2, 2))),
    ("a node whose axes are a set", r"the axes of a node must be a list of names: found \{'i'\}", lambda w: tn.Node("A", {"i"}, (2,))),
    ("a node whose axes have numbers for names", r"the name of an axis must be a Python identifier .*: found 0", lambda w: tn.Node("A", (0, 1), (2, 2))),
    ("a node whose name is None", r"the name of a node must be a Python identifier .*: found None", lambda w: tn.Node(None, ("i",), (2,))),
    ("a node whose name is code", r"the name of a node must be a Python identifier .*: found 'a; b'", lambda w: tn.Node("a; b", ("i",), (2,))),
    ("a node whose shape is a number", r"the shape of a node must be a list of sizes: found 2", lambda w: tn.Node("A", ("i",), 2)),
    ("a node learnt by half", r"learnt.*True or False: found 0\.5", lambda w: tn.Node("A", ("i",), (2,), 0.5)),
    ("a network of no nodes", r"at least one node", lambda w: tn.Network((), (), ())),
    ("a network of what is no node", r"nodes.*tnshare\.Node.*found", lambda w: tn.Network(("A", "B"), ("i",), ())),
    ("a network of one node outside of a list", r"nodes.*found", lambda w: tn.Network(w.node, ("i",), ())),
    ("a network whose output is a string", r"output.*found 'i'", lambda w: tn.Network((tn.Node("A", ("i",), (2,)),), "i")),
    ("a network with two nodes of a name", r"the name 'A' is used 2 times: expected it once", nodes(A, ("A", *B[1:]))),
    ("a network with two sizes of an axis", r"axis 'k' has size 2 and, in .*, 4", nodes(A, ("B", ("task", "k"), (3, 4)))),
    ("a network with an unknown output", r"no node has the axis 'o': expected one of", nodes(A, B, output=("i", "o", "task"))),
    ("a network with an open bond", r"axis 'q' is in one node only", nodes(A, ("B", ("task", "k", "q"), (3, 2, 2)))),
    ("a network with an axis twice in its output", r"'i' is used 2 times", nodes(A, B, output=("i", "i", "task"))),
    ("a network with the tasks behind", r"task axes .* must come first in", nodes(A, ("B", ("k", "task"), (2, 3)))),
    ("renaming an unknown axis", r"no axis is called 'zz': expected one of", lambda w: w.network.rename("zz", "b")),
    ("renaming to a name that is taken", r"cannot rename .* to 'o'", lambda w: w.network.rename("i", "o")),
    ("renaming to an axis of no size", r"size of axis 'b'.*found 0\.5", lambda w: w.network.rename("task", "b", 0.5)),
    ("dropping an unknown axis", r"no axis is called 'zz'", lambda w: w.network.drop("zz")),
    ("feeding an axis of unknown size", r"size of axis 'b' of 'x' is not known: say b=", lambda w: w.network.feed("x", ("b", "i"), ("b", "o"))),
    ("feeding a size of no axis", r"found a size for 'zz'", lambda w: w.network.feed("x", ("i",), ("o",), zz=3)),
    ("turning to other axes", r"expected the axes .* in any order, found \('i',\)", lambda w: w.network.to("i")),
    ("an unknown node", r"no node is called 'zz': expected one of", lambda w: w.network.node("zz")),
    ("a network for 0 tasks", r"tasks.* at least 1: found 0", lambda w: w.network.for_tasks(0)),
)  # fmt: skip

LAYERS = catalogue(
    ("Linear of no inputs", r"in_features must be a whole number of at least 1: found 0", linear(0)),
    ("Linear of inputs that are a float", r"in_features must be.*found 5\.0", linear(5.0)),
    ("Linear of inputs that are a string", r"in_features must be.*found '5'", linear("5")),
    ("Linear of NaN outputs", r"out_features must be.*found nan", linear(5, NAN)),
    ("Linear of True outputs", r"out_features must be.*found True", linear(5, True)),
    ("Linear of outputs that are None", r"out_features must be.*found None", linear(5, None)),
    ("Linear of an array of inputs", r"in_features must be.*found array", linear(np.array([5, 5]))),
    ("Linear of no tasks", r"tasks must be a whole number.*: found 0", linear(tasks=0)),
    ("Linear of tasks=True", r"tasks must be a whole number.*: found True", linear(tasks=True)),
    ("Linear of negative tasks", r"tasks must be a whole number.*: found -3", linear(tasks=-3)),
    ("Linear of tasks in a list", r"tasks must be a whole number.*: found \['a', 'b'\]", linear(tasks=["a", "b"])),
    ("Linear of tasks in a set", r"tasks must be a whole number.*: found \{", linear(tasks={3})),
    ("Linear of an empty dict of tasks", r"tasks must be a whole number, or names.*: found \{\}", linear(tasks={})),
    ("Linear of tasks with numbers for names", r"or names with numbers.*: found \{4: 2\}", linear(tasks={4: 2})),
    ("Linear of a task axis called i", r"a task axis cannot be called 'i': the layer itself uses b, m, i, o", linear(tasks={"i": 3})),
    ("Linear of a task axis with a blank", r"cannot be called 'my site'.*identifier", linear(tasks={"my site": 3})),
    ("Linear of a task axis of size 0", r"tasks\['site'\] must be.*found 0", linear(tasks={"site": 0})),
    ("Linear of a task axis given twice", r"different names: found", linear(tasks=(("site", 2), ("site", 3)))),
    ("Linear with a rank for a specification", r"spec must be a factorisation such as tnshare\.LAF\(4\): found 4", linear(spec=4)),
    ("Linear with a method's name", r"spec must be a factorisation.*found 'tucker'", linear(spec="tucker")),
    ("Linear with a class for a specification", r"spec must be a factorisation.*found <class", linear(spec=tn.LAF)),
    ("Linear with ranks that are too large", r"LAF rank k=4 is out of range: expected 1 <= k <= 3", linear(spec=tn.LAF(4))),
    ("Linear with the ranks of a convolution", r"takes 3 ranks \(k_i, k_o, k_task\): found 5", linear(spec=tn.Tucker((1,) * 5))),
    ("Linear with codes of other tasks", r"frozen codes .* of 5 tasks cannot serve 3 tasks", linear(spec=tn.LAF.single_task(5))),
    ("Linear with a bias of 1", r"bias must be True or False: found 1", linear(bias=1)),
    ("Linear with a bias of None", r"bias must be True or False: found None", linear(bias=None)),
    ("Linear with an unknown keyword", r"use_bias", linear(use_bias=True), TypeError),
    ("Conv with four dimensions", r"1, 2 or 3 dimensions: found kernel=\(1, 1, 1, 1\)", conv(kernel=(1,) * 4)),
    ("Conv with an empty kernel", r"1, 2 or 3 dimensions: found kernel=\(\)", conv(kernel=())),
    ("Conv with a kernel of 0", r"kernel must be.*found 0", conv(kernel=(3, 0))),
    ("Conv with a kernel in a string", r"kernel must be.*found '3'", conv(kernel="33")),
    ("Conv with a kernel in a set", r"kernel must be.*found \{", conv(kernel={3, 5})),
    ("Conv with a kernel of None", r"kernel must be.*found None", conv(kernel=None)),
    ("Conv with groups that do not divide", r"groups=3 must divide in_channels=2 and out_channels=4", conv(groups=3)),
    ("Conv with groups of 0", r"groups must be.*found 0", conv(groups=0)),
    ("Conv with a stride of 0", r"stride must be.*at least 1: found 0", conv(stride=0)),
    ("Conv with a stride too many", r"stride must be one number, or 2, one for each dimension: found \(1, 1, 1\)", conv(stride=(1, 1, 1))),
    ("Conv with a dilation of -1", r"dilation must be.*found -1", conv(dilation=-1)),
    ("Conv with a negative padding", r"padding must be.*at least 0: found -1", conv(padding=-1)),
    ("Conv with a padding by another name", r"padding must be 'same', 'valid' or whole numbers: found 'SAME'", conv(padding="SAME")),
    ("Conv with a padding of None", r"padding must be.*found None", conv(padding=None)),
    ("Conv with strides and padding='same'", r"padding='same' needs stride 1", conv(padding="same", stride=2)),
    ("Conv with pairs of padding too few", r"padding needs a pair for each of 2 dimensions", conv(padding=((1, 1),))),
    ("Conv with an unknown padding mode", r"padding_mode must be one of .*'circular'.*: found 'wrap'", conv(padding_mode="wrap")),
    ("Conv with the ranks of a linear layer", r"takes 5 ranks \(k_h, k_w, k_c, k_m, k_task\): found 3", conv(spec=tn.Tucker((1, 1, 1)))),
    ("Conv with a padding mode in a list", r"padding_mode must be one of .*: found \['zeros'\]", conv(padding_mode=["zeros"])),
    ("Embedding of no rows", r"num_embeddings must be.*found 0", embedding(0)),
    ("Embedding of a dimension of 2.5", r"embedding_dim must be.*found 2\.5", embedding(7, 2.5)),
    ("Embedding with padding out of range", r"expected -7 <= padding_idx <= 6, found 7", embedding(padding_idx=7)),
    ("Embedding with padding far below", r"padding_idx must be.*-7.*found -8", embedding(padding_idx=-8)),
    ("Embedding with padding by name", r"padding_idx must be.*found '<pad>'", embedding(padding_idx="<pad>")),
    ("Embedding with padding True", r"padding_idx must be.*found True", embedding(padding_idx=True)),
    ("init with a negative seed", r"a seed must be a whole number of at least 0: found -1", lambda w: w.layer.init(-1)),
    ("init with a seed that is None", r"a seed must be.*found None", lambda w: w.layer.init(None)),
    ("init with a float for a seed", r"a seed must be.*found 0\.5", lambda w: w.layer.init(0.5)),
    ("init with a dtype of whole numbers", r"dtype must be one of .*: found int32", lambda w: w.layer.init(0, "int32")),
    ("init with a dtype that is none", r"dtype must be one of .*: found 'float31'", lambda w: w.layer.init(0, "float31")),
    ("init with an unknown scheme", r"scheme must be 'direct' or 'decomposed': found 'random'", lambda w: w.layer.init(0, scheme="random")),
    ("adopting what is no decomposition", r"a decomposition by LAF\(2\).* was expected: found dict", lambda w: w.layer.adopt({})),
    ("adopting another decomposition", r"a decomposition by LAF\(2\) .*: found Decomposition", lambda w: w.layer.adopt(tn.decompose(np.ones((5, 4, 3)), "tt"))),
    ("a plan for an unknown way", r"way must be one of .*'mixed'.*: found 'mix'", lambda w: w.layer.plan("mix", 3)),
    ("a plan for a way in a list", r"way must be one of .*: found \['mixed'\]", lambda w: w.layer.plan(["mixed"], 3)),
    ("a plan for a negative batch", r"batch must be.*at least 0: found -1", lambda w: w.layer.plan("mixed", -1)),
    ("a plan for a batch of 2.5", r"batch must be.*found 2\.5", lambda w: w.layer.plan("one", 2.5)),
    ("a plan with inner None in words", r"inner must be.*found 'none'", lambda w: w.layer.plan("mixed", 3, "none")),
    ("candidates for an unknown device", r"device must be a .*Profile.*: found 'cpu'", lambda w: w.layer.candidates("one", 3, device="cpu")),
    ("candidates for no way", r"way must be one of", lambda w: w.layer.candidates(None, 3)),
    ("candidates with training in words", r"training must be True or False: found 'no'", lambda w: w.layer.candidates("one", 3, training="no")),
)  # fmt: skip


@SPECS
def test_factorisations_and_networks(misuse, world):
    refused(misuse, world)


@LAYERS
def test_descriptions_of_layers(misuse, world):
    refused(misuse, world)
