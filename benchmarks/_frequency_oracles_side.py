"""pure-ldp and multi-freq-ldpy, asked by benchmarks/local.py: encode and estimate, value by value as they do."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _side import Refused, serve
from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.hadamard_response import HadamardResponseClient, HadamardResponseServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer


def _values(categories: int, reports: int) -> list[int]:
    return np.random.default_rng(0).integers(0, categories, reports).tolist()


def pure_ldp(oracle: str, categories: int, epsilon: float, reports: int) -> tuple[float, Any]:
    start = time.perf_counter()
    values = _values(categories, reports)
    same = {"index_mapper": int}
    if oracle == "RandomizedResponse":
        client, server = DEClient(epsilon, categories, **same), DEServer(epsilon, categories, **same)
    elif oracle in ("OptimizedUnary", "SymmetricUnary"):
        best = oracle == "OptimizedUnary"
        client = UEClient(epsilon, categories, use_oue=best, **same)
        server = UEServer(epsilon, categories, use_oue=best, **same)
    elif oracle == "LocalHashing":
        client = LHClient(epsilon, categories, use_olh=True, **same)
        server = LHServer(epsilon, categories, use_olh=True, **same)
    elif oracle == "HadamardResponse":
        server = HadamardResponseServer(epsilon, categories, **same)
        client = HadamardResponseClient(epsilon, categories, server.get_hash_funcs(), **same)
    else:
        raise Refused("not offered")
    loading = time.perf_counter() - start
    for value in values:
        server.aggregate(client.privatise(value))
    found = [server.estimate(category, suppress_warnings=True) for category in range(categories)]
    return loading, float(np.sum(found)) / reports


def multi_freq_ldpy(oracle: str, categories: int, epsilon: float, reports: int) -> tuple[float, Any]:
    start = time.perf_counter()
    values = _values(categories, reports)
    calls: dict[str, tuple[Any, Any]] = {
        "RandomizedResponse": (
            lambda v: GRR.GRR_Client(v, categories, epsilon),
            lambda r: GRR.GRR_Aggregator_MI(r, categories, epsilon),
        ),
        "OptimizedUnary": (
            lambda v: UE.UE_Client(v, categories, epsilon, True),
            lambda r: UE.UE_Aggregator_MI(r, epsilon, True),
        ),
        "SymmetricUnary": (
            lambda v: UE.UE_Client(v, categories, epsilon, False),
            lambda r: UE.UE_Aggregator_MI(r, epsilon, False),
        ),
        "LocalHashing": (
            lambda v: LH.LH_Client(v, categories, epsilon, True),
            lambda r: LH.LH_Aggregator_MI(r, categories, epsilon, True),
        ),
        "SubsetSelection": (
            lambda v: SS.SS_Client(v, categories, epsilon),
            lambda r: SS.SS_Aggregator_MI(r, categories, epsilon),
        ),
    }
    if oracle not in calls:
        raise Refused("not offered")
    encode, estimate = calls[oracle]
    encode(0)  # compiles
    loading = time.perf_counter() - start
    found = estimate([encode(value) for value in values])
    return loading, float(np.sum(found))


if __name__ == "__main__":
    serve("pure-ldp", {"pure_ldp": pure_ldp, "multi_freq_ldpy": multi_freq_ldpy})
