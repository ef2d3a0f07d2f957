"""The main job as one call: captures to messages, calls, links, traces and loads, all into one run file.

Each table is stored as soon as it is made, each in a transaction of its own: after Ctrl-C or on a full disk
the run file holds the stages that were done, and `meta` says `complete: false` with the last stage.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapscope import __version__
from tapscope.cli.inputs import Inputs, check_captures, find_inputs
from tapscope.cli.output import Progress
from tapscope.store.codes import CloseHow, EvidenceMode
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table

if TYPE_CHECKING:
    from tapscope.capture import CaptureTables
    from tapscope.reconstruct.match.refusal import Refusal
    from tapscope.reconstruct.run import Reconstruction


@dataclass(frozen=True)
class TraceOptions:
    """How a capture is traced; stored with the run."""

    evidence: EvidenceMode = EvidenceMode.ALL
    min_probability: float = 0.0
    max_wrong_joins: float = 1.0
    """Not with `follow`: it is known when all links are."""
    window_ns: int = 50_000_000
    port_map: dict[int, str] = field(default_factory=dict)
    keep_text: bool = False
    keep_evidence: bool = False
    tls_keylog: Path | None = None
    tls_keylog_wait_ns: int = 2_000_000_000
    """With `follow`: a TLS connection waits so long for secrets that are not in the log yet."""
    reorder_window_ns: int = 10_000_000
    follow: bool = False
    self_check: bool = True
    threads: int = 1
    """That read packets, one or two; 0: as there are cores. Not stored: the tables are the same."""
    thread_logs: tuple[Path, ...] = ()
    """Of the servers: parents are told by them, and nothing is matched,"""
    match_rest: bool = False
    """but for what they do not tell, where this is wanted."""
    same_nodes: tuple[tuple[str, ...], ...] = ()
    """Groups of addresses that are one server each."""
    match: bool = True
    """False: calls are left without parents, for what needs no transactions."""
    match_threads: int = 0
    """That match, each one node; 0: one per core. Not stored: the links are the same for any number."""

    @property
    def refusal(self) -> Refusal:
        """Which links are too unsure to be made."""
        from tapscope.reconstruct.match.refusal import Refusal

        return Refusal(self.min_probability, self.max_wrong_joins)

    def record(self) -> dict[str, Any]:
        """Plain values for the run's description."""
        return {
            "evidence": self.evidence.name.lower(),
            "min_probability": self.min_probability,
            "max_wrong_joins": self.max_wrong_joins,
            "window_ns": self.window_ns,
            "port_map": {str(port): protocol for port, protocol in self.port_map.items()},
            "keep_text": self.keep_text,
            "keep_evidence": self.keep_evidence,
            "reorder_window_ns": self.reorder_window_ns,
            "self_check": self.self_check,
            "thread_logs": [str(path) for path in self.thread_logs],
            "match_rest": self.match_rest,
            "match": self.match,
            "same_nodes": [list(group) for group in self.same_nodes],
        }


def trace(
    inputs: Sequence[str | Path],
    out: str | Path,
    options: TraceOptions | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    over: Callable[[], bool] | None = None,
) -> Path:
    """Trace capture files or a run directory into a new run file at `out` and return its path.

    Raises TapscopeError for unusable input or output. Host logs of a run directory are loaded too; its event
    logs and truth are not touched (they are for `validate`). What is followed is followed until `over` says
    so; None: until a signal.
    """
    options = options or TraceOptions()
    found = find_inputs(inputs)
    if not options.follow:  # what grows may have no byte yet
        check_captures(found.captures)
    from tapscope import capture

    with RunFile.create(out, force=force) as run:
        started = time.monotonic()
        seconds: dict[str, float] = {}

        def done(stage: str) -> None:
            nonlocal started
            now = time.monotonic()
            seconds[stage], started = round(now - started, 3), now
            run.set_meta("stage", stage)

        run.set_meta("tapscope_version", __version__)
        run.set_meta("options", options.record())
        run.set_meta("inputs", [str(path) for path in inputs])
        if found.manifest_path is not None:
            run.set_meta("manifest", found.manifest)
        if found.spools:
            _refuse_reading_options(options, found.spools[0])
        if options.follow and _grows(found, options):
            _follow(run, found, options, over)
            done("follow")
        else:
            if found.spools:
                captured = capture.read_spool(found.spools, progress=told(progress, "reading segments"))
            else:
                captured = _read_packets(found.captures, options, progress)
            done("read")
            store_capture(run, captured, keep_evidence=options.keep_evidence)
            done("store")
            if captured.interrupted and not options.follow:
                raise KeyboardInterrupt
            made = reconstruct(run, captured, options, progress)
            done("reconstruct")
            if options.self_check:
                store_expectation(run, made, made.calls, captured.evidence, options, progress)
                done("self-check")
        for folder in found.host_folders:
            from tapscope.hostmon.load import load_host_files

            load_host_files(run, folder)
        done("hosts")
        run.set_meta("seconds", seconds)
        run.set_meta("complete", True)
        run.check_in_place()
    return Path(out)


def _grows(found: Inputs, options: TraceOptions) -> bool:
    """Do transactions go into the run file while the input grows? Where nothing is matched there are none."""
    if options.match and not options.thread_logs:
        if len(found.spools) > 1:
            raise TapscopeError(
                "only one spool can be followed",
                path=found.spools[1],
                remedy="Follow each into a run file of its own.",
                exit_code=ExitCode.USAGE,
            )
        return True
    if found.spools:
        raise TapscopeError(
            "a spool is followed to match what comes",
            path=found.spools[0],
            remedy="Leave out --follow: what the spool holds by now is read.",
            exit_code=ExitCode.USAGE,
        )
    return False


def _follow(run: RunFile, found: Inputs, options: TraceOptions, over: Callable[[], bool] | None) -> None:
    from tapscope.cli.following import follow

    run.set_meta("stage", "follow")
    follow(run, found.captures, found.spools, options, over)


def _read_packets(paths: Sequence[Path], options: TraceOptions, progress: Progress | None) -> CaptureTables:
    from tapscope import capture
    from tapscope.capture.descriptors import make_room
    from tapscope.capture.follow import DESCRIPTORS, followed

    with contextlib.ExitStack() as stack:
        names = [str(path) for path in paths]
        if options.follow:
            make_room(len(names), DESCRIPTORS)
        growing = [stack.enter_context(followed(name)) for name in names] if options.follow else []
        captured = capture.read_files(
            [file.pipe for file in growing] or names,
            keep_text=options.keep_text,
            port_map=port_codes(options.port_map),
            tls_keylog=options.tls_keylog,
            limits={
                "reorder_window_ns": options.reorder_window_ns,
                "tls_key_wait_ns": options.tls_keylog_wait_ns if options.follow else 0,
            },
            threads=options.threads,
            progress=told(progress, "reading packets"),
        )
    for source, name in zip(captured.sources, names, strict=True):
        source["path"] = name
    for source, file in zip(captured.sources, growing, strict=False):
        if file.warning is not None:
            source["warning"] = "; ".join(filter(None, [source.get("warning"), file.warning]))
    return captured


def _refuse_reading_options(options: TraceOptions, spool: Path) -> None:
    """What is read from packets was decided when the spool was written."""
    if options.port_map or options.keep_text or options.tls_keylog:
        raise TapscopeError(
            "a spool holds messages, not packets: --port-map, --keep-text and --tls-keylog come too late",
            path=spool,
            remedy="Give the first two to `tapscope capture`; decrypt a packet file.",
            exit_code=ExitCode.USAGE,
        )


def port_codes(port_map: dict[int, str]) -> dict[int, int]:
    """Protocol codes for the capture engine."""
    from tapscope.store.codes import Protocol

    return {port: int(Protocol[name.upper()]) for port, name in port_map.items()}


def told(progress: Progress | None, what: str) -> Any:
    """`progress` with its first argument given; None stays None."""
    if progress is None:
        return None
    return lambda done, total: progress(what, done, total)


def store_capture(run: RunFile, captured: CaptureTables, *, keep_evidence: bool = False) -> None:
    """Store what the capture engine saw. Evidence tokens (salted hashes) only on demand: they are many."""
    run.write_sources([{"kind": "capture"} | dict(source) for source in captured.sources])
    run.write_counters(captured.counters)
    run.set_meta("tap_points", [list(map(int, row)) for row in captured.tap_points])
    run.write_addresses(captured.addresses)
    run.write_classes(captured.classes, captured.examples)
    run.write_table("connections", captured.connections)
    run.write_table("messages", captured.messages)
    run.write_table("tcp_events", captured.tcp_events)
    if keep_evidence:
        run.write_table("evidence", captured.evidence)


def reconstruct(
    run: RunFile, captured: CaptureTables, options: TraceOptions, progress: Progress | None = None
) -> Reconstruction:
    """Rebuild calls, links, traces and loads from captured messages and store them."""
    if options.thread_logs:
        return _by_threads(run, captured, options, progress)
    from tapscope.reconstruct import run as reconstruction

    made = reconstruction.trace(
        captured,
        options.evidence if options.match else None,
        refusal=options.refusal,
        same_nodes=options.same_nodes,
        threads=options.match_threads,
        progress=told(progress, "matching calls"),
    )
    store_reconstruction(run, made, captured.connections, options)
    return made


def _by_threads(
    run: RunFile, captured: CaptureTables, options: TraceOptions, progress: Progress | None
) -> Reconstruction:
    from tapscope.reconstruct.threads import log
    from tapscope.reconstruct.threads import run as by_threads

    logs = log.read(options.thread_logs, progress=told(progress, "reading thread logs"))
    rest = options.evidence if options.match_rest else None
    found = by_threads.trace(
        captured,
        logs,
        match_rest=rest,
        refusal=options.refusal,
        same_nodes=options.same_nodes,
        threads=options.match_threads,
    )
    store_reconstruction(run, found.made, captured.connections, options)
    lost = sum(process.lost for process in logs.processes)
    told_of = {"logs": len(logs.processes), "records_lost": lost, "refused": found.refused}
    run.set_meta("threads", told_of | {"rest_matched": options.match_rest})
    return found.made


def store_reconstruction(
    run: RunFile, made: Reconstruction, connections: Table, options: TraceOptions
) -> None:
    """Store what was rebuilt, and the loads that follow from it."""
    from tapscope.analyze.calls import Read, in_order_of_calls
    from tapscope.analyze.load import loads

    run.write_table("nodes", made.nodes)
    run.write_node_names(made.node_names)
    run.write_table("calls", made.calls)
    delays = in_order_of_calls(made.trace_calls, len(made.calls["conn"]))
    read = Read(made.calls, connections | {"closed_ns": connection_ends(connections)}, delays)
    run.write_counters(read.stay.counters)
    run.write_table("loads", loads(read, made.nodes, options.window_ns))
    run.write_table("links", made.links)
    run.write_table("traces", made.traces)
    run.write_table("trace_calls", made.trace_calls)
    run.set_meta("edges", [list(map(int, edge)) for edge in made.edges])
    run.set_meta("quality", made.quality())
    run.write_counters([(name, int(value), "") for name, value in made.counters.items()])


def store_expectation(
    run: RunFile,
    made: Reconstruction,
    calls: Table,
    evidence: Table,
    options: TraceOptions,
    progress: Progress | None = None,
    callers: Table | None = None,
) -> None:
    """Store what accuracy is to be expected (meta expected; null when too little is sure). `calls`: as the
    matcher got them; `callers`: times by the callers' clocks, where they have their own."""
    from tapscope.reconstruct.self_check import expectation

    found = expectation(
        calls,
        made.links,
        made.traces,
        made.trace_calls,
        evidence,
        options.evidence,
        callers,
        threads=options.match_threads,
        progress=told(progress, "matching a sample again"),
    )
    run.set_meta("expected", None if found is None else found.as_json())


def connection_ends(connections: Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """When each connection ended for sure, ns; -1 where it was still open when the capture ended."""
    gone = np.isin(connections["close_how"], (CloseHow.REUSED, CloseHow.EVICTED, CloseHow.JUMPED))
    last = np.where(gone, connections["last_ns"], -1)
    return np.where(connections["closed_ns"] >= 0, connections["closed_ns"], last).astype(np.int64)
