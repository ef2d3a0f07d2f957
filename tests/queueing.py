"""Queues whose truth is known: closed loops of users on M/G/c servers that can stop or change their speed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read
from tapscope.analyze.node_work import NodeWork


@dataclass
class Queue:
    """Calls of one node in order of arrival; times int64 ns."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cls: NDArray[np.int64]

    def calls(self) -> dict[str, NDArray[np.int64]]:
        n = len(self.begin_ns)
        zero = np.zeros(n, dtype=np.int64)
        return {
            "server_node": zero,
            "client_node": zero + 1,
            "class_id": self.cls,
            "arrive_ns": self.begin_ns,
            "request_end_ns": self.begin_ns,
            "depart_ns": self.end_ns,
            "flags": zero,
            "conn": np.arange(n),
        }

    def work(self) -> NodeWork:
        """The node as the analyses see it: all of a stay is its own."""
        return Read(self.calls(), NO_CONNECTIONS, self.end_ns - self.begin_ns).work(0)


NO_CONNECTIONS = {"closed_ns": np.zeros(0, dtype=np.int64)}


def read_of(calls: dict[str, NDArray[np.int64]]) -> Read:
    """Calls of which neither connections nor delays inside the nodes are known."""
    return Read(calls, NO_CONNECTIONS, np.full(len(calls["conn"]), -1, dtype=np.int64))


def closed_loop(
    servers: int,
    service_s: tuple[float, ...] = (0.005,),
    seconds: float = 60.0,
    *,
    seed: int = 1,
    users: int = 0,
    shape: float = 1.0,
    stops: tuple[tuple[float, float], ...] = (),
    speeds: tuple[float, ...] = (1.0,),
    busy: bool = True,
) -> Queue:
    """Users think and call; `servers` serve in order; Gamma service times (`shape` 1: exponential).

    Think times change a few times a second, so that load covers its whole range; `busy` False keeps it light.
    While the node stops it serves nobody: service under way goes on afterwards. Speed changes about once
    a second.
    """
    rng = np.random.default_rng(seed)
    users = users or 6 * servers
    mean = float(np.mean(service_s))
    think, next_phase = 6.0, 0.0
    speed, next_speed = speeds[0], 0.0
    waiting = [(float(rng.exponential(5 * mean)), user) for user in range(users)]
    heapq.heapify(waiting)
    free = [0.0] * servers
    begin, end, classes = [], [], []
    while True:
        now, user = heapq.heappop(waiting)
        if now > seconds:
            break
        if now > next_phase:
            think = float(rng.choice([2.0, 6.0, 12.0, 40.0])) if busy else 60.0
            next_phase = now + float(rng.exponential(0.25))
        start = max(now, heapq.heappop(free))
        if start > next_speed:
            speed, next_speed = float(rng.choice(speeds)), start + float(rng.exponential(1.0))
        kind = int(rng.integers(len(service_s)))
        needs = float(rng.gamma(shape, service_s[kind] / shape)) / speed
        for stop, length in stops:
            if start < stop + length and start + needs > stop:
                needs += length - max(start - stop, 0.0)
        heapq.heappush(free, start + needs)
        begin.append(now)
        end.append(start + needs)
        classes.append(kind)
        heapq.heappush(waiting, (start + needs + float(rng.exponential(think * mean)), user))
    return Queue(
        (np.array(begin) * 1e9).astype(np.int64), (np.array(end) * 1e9).astype(np.int64), np.array(classes)
    )
