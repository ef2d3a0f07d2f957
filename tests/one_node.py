"""One node with known truth: calls that it serves and calls that it makes, of one mechanism at a time.

A world is written call by call; `tables` gives the columns that the matcher takes. Times are ns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.match.links import links
from tapscope.store.codes import CallFlag, EvidenceMode, Protocol
from tapscope.store.tables import TABLES, Table

NODE, CALLER, BEHIND = 1, 0, 2
US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000


@dataclass
class World:
    """Calls in any order; `parent` is the index of the call that made a call, -1 for what the node serves."""

    rows: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    tokens: list[tuple[int, bool, int, int, int]] = field(default_factory=list)
    setup: set[int] = field(default_factory=set)

    def serve(self, kind: int, arrive: int, depart: int, conn: int | None = None, answer: int = -1) -> int:
        """A call that the node serves, on a connection of its own unless one is named; its index. `answer`:
        bytes of the response, where known."""
        conn = len(self.rows) if conn is None else -1 - conn
        self.rows.append((-1, kind, conn, arrive, depart, NODE, answer))
        return len(self.rows) - 1

    def answer(self, call: int, depart: int) -> None:
        """Puts right when a call was over."""
        row = list(self.rows[call])
        row[4] = depart
        self.rows[call] = tuple(row)

    def call(
        self,
        parent: int,
        kind: int,
        begin: int,
        end: int,
        conn: int | None = None,
        answer: int = -1,
        *,
        setup: bool = False,
        server: int = 0,
    ) -> int:
        """A call that the node makes for `parent`, on a connection of its own unless one is named, to this
        `server` of those behind it."""
        if setup:
            self.setup.add(len(self.rows))
        conn = len(self.rows) if conn is None else -1 - conn
        self.rows.append((parent, kind, conn, begin, end, BEHIND + server, answer))
        return len(self.rows) - 1

    def call_on_any(
        self, draw: random.Random, calls: list[tuple[int, int, int, int]], connections: int
    ) -> None:
        """Calls (begin, end, kind, parent), each on one of so many connections that are free: any of them."""
        used_until = [0] * connections
        for begin, end, kind, parent in sorted(calls):
            conn = draw.choice([each for each, until in enumerate(used_until) if until <= begin])
            used_until[conn] = end
            self.call(parent, kind, begin, end, conn)

    def token(self, call: int, slot: int, kind: int, value: int, *, in_response: bool = False) -> None:
        """A content token of the request (or response) of a call."""
        self.tokens.append((call, in_response, slot, kind, value))

    def tables(self) -> tuple[Table, Table, NDArray[np.int64]]:
        """Calls in order of arrival, evidence, and the true parent of every call."""
        rows = np.array(self.rows, dtype=np.int64)
        order = np.argsort(rows[:, 3], kind="stable")
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = np.arange(len(rows))
        parent = rows[order, 0]
        rows = rows[order]
        served = rows[:, 5] == NODE
        _, conn = np.unique(rows[:, 2], return_inverse=True)
        columns = {
            "conn": conn,
            "request": 2 * np.arange(len(rows)),
            "response": 2 * np.arange(len(rows)) + 1,
            "client_node": np.where(served, CALLER, NODE),
            "server_node": rows[:, 5],
            "protocol": np.full(len(rows), Protocol.MYSQL),
            "class_id": rows[:, 1] + np.where(served, 0, 1000),
            "arrive_ns": rows[:, 3],
            "request_end_ns": rows[:, 3],
            "response_begin_ns": rows[:, 4],
            "depart_ns": rows[:, 4],
            "status": np.zeros(len(rows)),
            "flags": np.where(np.isin(order, sorted(self.setup)), CallFlag.SETUP, 0),
            "tcp_seq": np.zeros(len(rows)),
            "response_bytes": rows[:, 6],
            "gone_ns": np.full(len(rows), -1),
        }
        calls = {c.name: np.asarray(columns[c.name]).astype(c.dtype) for c in TABLES["calls"]}
        said = np.array(self.tokens, dtype=np.int64).reshape(-1, 5)
        message = 2 * place[said[:, 0]] + said[:, 1]
        values = (message, said[:, 2], said[:, 3], (said[:, 4] + 1) * 0x9E3779B97F4A7C1)
        evidence = {
            c.name: np.asarray(v).astype(c.dtype) for c, v in zip(TABLES["evidence"], values, strict=True)
        }
        return calls, evidence, np.where(parent >= 0, place[parent], -1)


@dataclass
class Score:
    """Share of right edges, share of served calls all of whose calls are right, and the edges themselves.

    `nobodys`: number of calls that no request made; `taken`: probabilities of the parents that some of them
    were given.
    """

    edges: float
    paths: float
    probability: NDArray[np.float64]
    right: NDArray[np.bool_]
    nobodys: int
    taken: NDArray[np.float64]


def score(world: World, mode: EvidenceMode = EvidenceMode.ALL) -> Score:
    """Match the world and compare with its truth."""
    calls, evidence, truth = world.tables()
    made = links(calls, evidence, mode)[0]
    child = truth >= 0
    right = made["parent"][child] == truth[child]
    spoilt = np.union1d(truth[child][~right], made["parent"][child][~right])
    served = np.unique(truth[child])
    nobodys = ~child & (calls["server_node"] != NODE)
    return Score(
        edges=float(right.mean()),
        paths=1.0 - np.isin(served, spoilt).mean(),
        probability=made["probability"][child],
        right=right,
        nobodys=int(nobodys.sum()),
        taken=made["probability"][nobodys & (made["parent"] >= 0)],
    )
