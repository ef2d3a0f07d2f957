"""Paths by thread logs against what the answers of vApp told their clients (vPath 4.3).

An answer tells where its request has been: the server's ADDRESS:PORT, followed by what each of its calls
told, in parentheses and in their order. A path by the logs is written the same way and compared as a text, so
that every call, its server, its parent and its place among its siblings count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapscope.reconstruct.threads.streams import is_server
from tapscope.validate.csv_files import csv_rows
from tapscope.validate.edges import rate
from tapscope.validate.threads.logged import LoggedPaths

NEEDED = ("start_ns", "end_ns", "status", "local_port", "answer")


@dataclass(frozen=True)
class AnswerAccuracy:
    """exist: answers that tell a path; reported: paths by the logs; correct: of one text, and of one request.

    completeness = correct / exist, accuracy = correct / reported (vPath 2.1); shapes: different texts;
    longest: calls of the longest path
    """

    exist: int
    reported: int
    correct: int
    completeness: float
    accuracy: float
    shapes: int
    longest: int


def texts(found: LoggedPaths) -> dict[int, str]:
    """Path of every call without a parent, as vApp would tell it."""
    logs, calls = found.logs, found.calls
    table = logs.connections
    serving = is_server(logs)[calls.seen_at]
    address = np.where(serving, table["own"][calls.seen_at], table["peer"][calls.seen_at]).tolist()
    port = np.where(serving, table["own_port"][calls.seen_at], table["peer_port"][calls.seen_at]).tolist()
    parent = found.told.parent
    # Children follow their parents in time: from the last call on, all that a call told is there.
    made_ns = np.where(found.sides.sent_ns >= 0, found.sides.sent_ns, calls.begin_ns)
    told: dict[int, list[str]] = {}
    whole: dict[int, str] = {}
    for row in np.argsort(made_ns, kind="stable")[::-1].tolist():
        text = f"{logs.addresses[address[row]]}:{port[row]}" + "".join(reversed(told.pop(row, [])))
        if parent[row] >= 0:
            told.setdefault(int(parent[row]), []).append(f"({text})")
        else:
            whole[row] = text
    return whole


def judge(found: LoggedPaths, requests: Path) -> AnswerAccuracy:
    """Compare with requests.csv of a testbed run: a path is that of the request from the same client port
    whose time holds it. Raises TapscopeError when the file has no answers."""
    counters: dict[str, int] = {}
    asked: dict[int, list[tuple[int, int, str]]] = {}
    exist = 0
    told = Counter[str]()
    for line in csv_rows(requests, NEEDED, counters, "answers"):
        if line["status"] == "200" and line["answer"]:
            exist += 1
            told[line["answer"]] += 1
            times = int(line["start_ns"]), int(line["end_ns"]), line["answer"]
            asked.setdefault(int(line["local_port"]), []).append(times)
    paths = texts(found)
    correct = 0
    table, seen_at = found.logs.connections, found.calls.seen_at
    for row, text in paths.items():
        port = int(table["peer_port"][seen_at[row]])
        at_ns = int(found.calls.begin_ns[row])
        correct += any(begin <= at_ns <= end and text == said for begin, end, said in asked.get(port, ()))
    return AnswerAccuracy(
        exist=exist,
        reported=len(paths),
        correct=correct,
        completeness=rate(correct, exist),
        accuracy=rate(correct, len(paths)),
        shapes=len(told),
        longest=max((text.count(":") for text in told), default=0),
    )
