"""What public modules showed in an earlier version, they show still."""

from __future__ import annotations

import importlib

import pytest

SHOWN_BY_0_1_0 = {
    "tnshare": "Candidate Conv Decomposition Embedding FrozenCodes LAF Layer Linear Network Node Plan Spec "
    "State Step TT TnshareError Tucker apply backends codes compose decompose decomposed_factors fan_out "
    "load ops random_factors save sharing_strength task_similarity weight",
    "tnshare.ops": "Array HasShape NDArray NumpyOps Ops convolve numpy_ops",
    "tnshare.backends": "load names",
    "tnshare.testing": "LAWS Law axis_sizes check_backend check_law linear_cases network_cases specs",
    "tnshare_torch": "Conv1d Conv2d Conv3d Embedding Linear Shared TorchOps calibrate ops replicate restore "
    "share",
    "tnshare_jax": "JaxOps Shared apply fan_out init ops params restore share source state tune weight",
    "tnshare_jax.nnx": "Conv Embedding Layer Linear SharedFactor TaskBias TaskCode",
    "tnshare_jax.equinox": "Conv Embedding Layer Linear labels",
}


@pytest.mark.parametrize("module", SHOWN_BY_0_1_0)
def test_names_stay(module):
    found = pytest.importorskip(module, exc_type=ImportError)
    missing = [name for name in SHOWN_BY_0_1_0[module].split() if not hasattr(found, name)]
    assert missing == [], f"{module} showed these; import them in its __init__"


@pytest.mark.parametrize("module", ["tnshare", "tnshare.ops", "tnshare.testing"])
def test_doors_list_what_they_show(module):
    listed = set(importlib.import_module(module).__all__)
    assert set(SHOWN_BY_0_1_0[module].split()) <= listed
