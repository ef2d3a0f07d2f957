"""Baselines that decide child by child, in order of time."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from .node import Node

Ints = NDArray[np.int64]


def first_come_first_served(node: Node) -> Ints:
    """Each child goes to the request that has waited longest: since it arrived, or since its last call was
    answered. A request that waits for an answer makes no other call."""
    found = np.full(len(node.begin_ns), -1, dtype=np.int64)
    idle_since = dict[int, int]()
    answers: list[tuple[int, int]] = []  # time, parent
    coming = 0
    arrive, depart = node.arrive_ns.tolist(), node.depart_ns.tolist()
    for child, (begin, end) in enumerate(zip(node.begin_ns.tolist(), node.end_ns.tolist(), strict=True)):
        while coming < len(arrive) and arrive[coming] <= begin:
            idle_since[coming] = arrive[coming]
            coming += 1
        while answers and answers[0][0] <= begin:
            at, parent = heapq.heappop(answers)
            idle_since[parent] = at
        for parent in [parent for parent in idle_since if depart[parent] < begin]:
            del idle_since[parent]
        fitting = [parent for parent in idle_since if depart[parent] >= end]
        if fitting:
            found[child] = parent = min(fitting, key=lambda each: (idle_since[each], each))
            del idle_since[parent]
            heapq.heappush(answers, (end, parent))
    return found


def arrival_order(node: Node) -> Ints:
    """The next child of a class goes to the request that arrived first among those that hold it and have none
    of its class yet; to the first that holds it when all have one."""
    found = np.full(len(node.begin_ns), -1, dtype=np.int64)
    served: set[tuple[int, int]] = set()
    for child, holding in enumerate(node.candidates()):
        kind = int(node.child_class[child])
        if holding:
            parent = next((each for each in holding if (each, kind) not in served), holding[0])
            served.add((parent, kind))
            found[child] = parent
    return found


def wap5(node: Node, rounds: int = 5) -> Ints:
    """After Reynolds et al., WAP5 (WWW 2006): delays from the request's arrival are exponential, with a mean
    per pair of classes; every child is given to its likeliest request, whatever the others get. The means
    are fitted to the posterior of all candidates."""
    candidates = node.candidates()
    child = np.repeat(np.arange(len(candidates)), [len(each) for each in candidates])
    parent = np.array([each for some in candidates for each in some], dtype=np.int64)
    found = np.full(len(candidates), -1, dtype=np.int64)
    if len(parent) == 0:
        return found
    delay = np.maximum(node.begin_ns[child] - node.arrive_ns[parent], 1).astype(np.float64)
    kinds = int(node.child_class.max()) + 1
    pair = node.parent_class[parent] * kinds + node.child_class[child]
    share = 1.0 / np.bincount(child, minlength=len(candidates))[child]
    density = share
    for _ in range(rounds):
        weight = np.bincount(pair, share)
        mean = np.bincount(pair, share * delay) / np.maximum(weight, 1e-300)
        density = np.exp(-delay / mean[pair]) / mean[pair]
        total = np.bincount(child, density, minlength=len(candidates))
        share = density / np.maximum(total[child], 1e-300)
    order = np.lexsort((density, child))
    last = np.flatnonzero(np.append(np.diff(child[order]) > 0, True))
    found[child[order[last]]] = parent[order[last]]
    return found
