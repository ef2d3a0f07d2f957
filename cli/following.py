"""`tapscope trace --follow`: transactions go into the run file while the capture grows.

Each piece of the capture is one step: it goes through the reconstruction, and what became clear is stored, in
one transaction. At the end come what only the whole run tells (`cli.followed`): the run file is then that of
a capture which is traced as a whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.capture.chunks import Chunk, Chunks
from tapscope.capture.growing import GrowingFiles, GrowingSpool, Piece
from tapscope.capture.live import Control
from tapscope.cli.followed import check_latest, conclude
from tapscope.cli.output import printable
from tapscope.cli.pipeline import TraceOptions, port_codes
from tapscope.cli.signals import asked_to_stop
from tapscope.reconstruct.live.run import Progressed, Reconstructor
from tapscope.store.codes import LinkKind
from tapscope.store.growing import GrowingRun, InOrder, Step
from tapscope.store.runfile import RunFile
from tapscope.store.tables import TABLES, Table, rows

BLOCKS_SECONDS = 60.0
CHECKED_CALLS = 50_000
"""The self-check is made of so many calls, the latest ones."""
TOLD_SECONDS = 1.0
ACCOUNT_SECONDS = 10.0
_MESSAGES = tuple(column.name for column in TABLES["messages"])
_TREE = tuple(column.name for name in ("links", "trace_calls") for column in TABLES[name])
_TRACES = (*(column.name for column in TABLES["traces"]), "last_call")


def follow(
    run: RunFile,
    captures: Sequence[Path],
    spools: Sequence[Path],
    options: TraceOptions,
    over: Callable[[], bool] | None = None,
) -> None:
    """Store what comes until the inputs end, or `over` says so (None: until Ctrl-C or SIGTERM).

    A second Ctrl-C raises KeyboardInterrupt: then the file holds what was stored until then."""
    source: GrowingFiles | GrowingSpool
    if spools:
        source = GrowingSpool(spools[0])
    else:
        source = GrowingFiles(
            captures,
            keep_text=options.keep_text,
            port_map=port_codes(options.port_map),
            limits={
                "reorder_window_ns": options.reorder_window_ns,
                "tls_key_wait_ns": options.tls_keylog_wait_ns,
            },
            tls_keylog=options.tls_keylog,
        )
    steps = _Steps(run, options)
    control = Control()
    with contextlib.ExitStack() as ending:
        if over is None:
            ending.enter_context(asked_to_stop(control))
        ending.enter_context(source)
        for piece in source.pieces():
            if piece is not None:
                run.check_in_place()
                steps.take(piece)
            if control.stop or (over is not None and over()):
                source.stop()
            steps.account(source)
            if over is None:  # else the terminal is another's
                steps.tell()
        steps.finish()
        steps.account(source, last=True)
        steps.conclude()


class _Steps:
    """The run file, step by step."""

    def __init__(self, run: RunFile, options: TraceOptions) -> None:
        self.chunks = Chunks()
        self._run, self._options = run, options
        self._growing = GrowingRun(run)
        self._live = Reconstructor(
            options.evidence,
            min_probability=options.min_probability,
            same_nodes=options.same_nodes,
            threads=options.match_threads,
        )
        self._session = 0
        self._latest: deque[tuple[int, Table]] = deque()
        """Evidence of the latest calls, for the self-check, and the number of the first of them."""
        self._messages = InOrder(_MESSAGES)
        self._tree = InOrder(_TREE)
        self._traces = InOrder(_TRACES)
        self._amended: dict[str, np.ndarray[Any, Any]] = {}
        self._late: list[np.ndarray[Any, Any]] = []
        self._evidence = self._tcp_events = self._addresses = self._classes = 0
        self._nodes = (0, 0)
        self._quality: dict[str, float | int] = dict.fromkeys(
            ("calls", "roots", "linked", "unknown", "traces", "complete_traces"), 0
        )
        self._sure = 0.0
        self._blocks = self._told = self._accounted = time.monotonic()
        self._told_messages = 0

    def take(self, piece: Piece) -> None:
        """A piece of the capture."""
        if self._session and piece.session != self._session:
            self._live.amend(self.chunks.next_session())
        self._session = piece.session
        self.chunks.learn_classes(piece.classes)
        chunk = self.chunks.add(piece.arrays, piece.about)
        self._store(self._live.add(chunk, self.chunks.addresses), chunk)
        if time.monotonic() - self._blocks > BLOCKS_SECONDS:
            self._growing.write_blocks(all_rows=False)
            self._blocks = time.monotonic()

    def finish(self) -> None:
        """Nothing more comes: everything is decided."""
        if not self._session:
            return
        self._live.amend(self.chunks.next_session())
        self._store(self._live.finish(self.chunks.addresses), None)
        assert not len(self._messages)
        assert not len(self._tree)
        assert not len(self._traces)

    def account(self, source: GrowingFiles | GrowingSpool, *, last: bool = False) -> None:
        """Store now and then what was read, and what of it was not understood."""
        if not last and time.monotonic() - self._accounted < ACCOUNT_SECONDS:
            return
        self._accounted = time.monotonic()
        sources = source.told(self.chunks.sources())
        self._run.write_sources([{"kind": "capture"} | one for one in sources])
        self._run.write_counters(self.chunks.counters() + source.counters())
        self._run.set_meta("tap_points", [list(map(int, row)) for row in self.chunks.tap_points()])

    def conclude(self) -> None:
        """What only the whole run tells."""
        late = np.unique(np.concatenate(self._late)) if self._late else np.zeros(0, dtype=np.int64)
        conclude(self._run, self._live, self.chunks, self._options, late)
        if self._options.self_check and self._latest:
            evidence = {
                c.name: np.concatenate([part[c.name] for _, part in self._latest]) for c in TABLES["evidence"]
            }
            check_latest(self._run, self._latest[0][0], evidence, self._options)

    def _remember(self, now: Progressed) -> None:
        if not self._options.self_check or not len(now.call_ids):
            return
        self._latest.append((int(now.call_ids[0]), now.evidence))
        while len(self._latest) > 1 and self._latest[1][0] <= self._live.calls - CHECKED_CALLS:
            self._latest.popleft()

    def _store(self, now: Progressed, chunk: Chunk | None) -> None:
        self._remember(now)
        with self._growing.step() as step:
            if chunk is not None:
                self._store_chunk(step, chunk)
            self._messages.add(now.message_rows, now.messages)
            step.append("messages", *self._messages.take())
            self._amend(step, now.amended)
            step.append("calls", self._live.calls - len(now.call_ids), now.calls)
            self._tree.add(now.done.trace_calls["call"], {**now.done.links, **now.done.trace_calls})
            first, tree = self._tree.take()
            for name in ("links", "trace_calls"):
                step.append(name, first, {c.name: tree[c.name] for c in TABLES[name]} if tree else {})
            last = np.full(len(now.done.trace_ids), -1, dtype=np.int64)
            place = np.searchsorted(now.done.trace_ids, now.done.trace_calls["trace"])
            np.maximum.at(last, place, now.done.trace_calls["call"])
            self._traces.add(now.done.trace_ids, {**now.done.traces, "last_call": last})
            # Whoever sees a trace is to see all of its calls.
            first, traces = self._traces.take(self._traces.peek("last_call") < self._tree.next)
            step.append("traces", first, {c.name: traces[c.name] for c in TABLES["traces"]} if traces else {})
            self._store_nodes(step)
            self._note(step, tree, traces)

    def _store_chunk(self, step: Step, chunk: Chunk) -> None:
        chunks = self.chunks
        step.put("connections", chunk.connection_rows, chunk.connections)
        step.append("tcp_events", self._tcp_events, chunk.tcp_events)
        self._tcp_events += rows(chunk.tcp_events)
        if self._options.keep_evidence:
            step.append("evidence", self._evidence, chunk.evidence)
            self._evidence += rows(chunk.evidence)
        fresh = list(enumerate(chunks.addresses))[self._addresses :]
        step.execute_each("INSERT INTO address (id, text) VALUES (?, ?)", fresh)
        self._addresses = len(chunks.addresses)
        classes = [
            (number, int(protocol), text, chunks.examples.get(number, ""))
            for number, (protocol, text) in list(enumerate(chunks.classes))[self._classes :]
        ]
        step.execute_each("INSERT INTO class (id, protocol, text, example) VALUES (?, ?, ?, ?)", classes)
        self._classes = len(chunks.classes)

    def _amend(self, step: Step, more: dict[str, np.ndarray[Any, Any]]) -> None:
        """Amendments of messages that were handed on: of those that are stored."""
        if not self._amended:
            self._amended = more
        else:
            self._amended = {
                name: np.concatenate([values, more[name]]) for name, values in self._amended.items()
            }
        if not len(self._amended["message"]):
            return
        stored = self._amended["message"] < self._messages.next
        now = {name: values[stored] for name, values in self._amended.items()}
        self._amended = {name: values[~stored] for name, values in self._amended.items()}
        self._late.append(np.unique(now["message"]))
        kinds = np.stack([now["column"], now["change"]], axis=1)
        # Runs of one kind, in order.
        borders = np.flatnonzero((np.diff(kinds, axis=0) != 0).any(axis=1)) + 1
        for part in np.split(np.arange(len(kinds)), borders) if len(kinds) else []:
            column, change = kinds[part[0]].tolist()
            step.amend(now["message"][part], _MESSAGES[column], change, now["value"][part])

    def _store_nodes(self, step: Step) -> None:
        state = (len(self._live.nodes), len(self._live.nodes.edges))
        if state == self._nodes:
            return
        self._nodes = state
        table, names = self._live.nodes.table(self.chunks.addresses)
        step.put("nodes", np.arange(state[0]), table)
        step.execute_each("UPDATE node SET name = ? WHERE id = ?", [(n, i) for i, n in enumerate(names)])

    def _note(self, step: Step, tree: dict[str, Any], traces: dict[str, Any]) -> None:
        quality = self._quality
        if tree:
            kinds = np.bincount(tree["kind"], minlength=3)
            quality["calls"] += len(tree["kind"])
            quality["roots"] += int(kinds[LinkKind.ROOT])
            quality["linked"] += int(kinds[LinkKind.LINKED])
            quality["unknown"] += int(kinds[LinkKind.UNKNOWN])
            self._sure += float(tree["probability"][tree["kind"] == LinkKind.LINKED].sum())
        if traces:
            quality["traces"] += len(traces["root"])
            quality["complete_traces"] += int(traces["complete"].sum())
        share = self._sure / quality["linked"] if quality["linked"] else 1.0
        state = {"until_ns": self._until_ns(), "seen_ns": self.chunks.now_ns}
        for key, value in (("quality", quality | {"expected_edge_accuracy": share}), ("following", state)):
            step.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, json.dumps(value, sort_keys=True))

    def _until_ns(self) -> int:
        """Transactions that began before are stored, as far as they are over."""
        return self._live.waiting_since_ns()

    def tell(self) -> None:
        """How far it is, on a terminal."""
        now = time.monotonic()
        if now - self._told < TOLD_SECONDS or not sys.stderr.isatty():
            return
        rate = (self.chunks.messages - self._told_messages) / (now - self._told)
        self._told, self._told_messages = now, self.chunks.messages
        behind = (self.chunks.now_ns - self._until_ns()) / 1e9 if self._tree.next else float("nan")
        line = (
            f"{self._quality['traces']} transactions, {behind:.0f} s behind; "
            f"{rate:.0f} messages/s, {_resident_bytes() / 1e6:.0f} MB"
        )
        print(f"\r\x1b[K{printable(line)}", end="", file=sys.stderr, flush=True)


def _resident_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
