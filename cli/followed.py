"""The end of `tapscope trace --follow`: what only the whole run tells, read back from what was stored.

The capture is over, and with it the bound on memory: queue lengths, and where the tap lost bytes its marks,
take the times of all calls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.capture.chunks import Chunks
from tapscope.cli.pipeline import TraceOptions, connection_ends
from tapscope.reconstruct import assumed, pair, topology, unseen
from tapscope.reconstruct.live.run import Reconstructor
from tapscope.store.codes import LinkKind, MessageKind
from tapscope.store.growing import GrowingRun, Step
from tapscope.store.runfile import RunFile
from tapscope.store.tables import TABLES, Table, rows

Ids = NDArray[np.int64]


def conclude(run: RunFile, live: Reconstructor, chunks: Chunks, options: TraceOptions, late: Ids) -> None:
    """Make the run file what it is where the capture is traced as a whole. `late`: messages that changed
    after their calls were handed on."""
    if not live.calls:
        return
    growing = GrowingRun(run)
    with growing.step() as step:
        step.execute("DELETE FROM meta WHERE key = 'following'")
        step.execute_each(
            "UPDATE class SET example = ? WHERE id = ?",
            [(text, number) for number, text in chunks.examples.items()],
        )
        _number_nodes(step, live, chunks.addresses)
        if len(late):
            _mend_calls(step, run, late)
        doubtful = live.doubtful_roots()
        _make_unknown(step, doubtful)
    calls = run.read_table("calls")
    missed = _mark_losses(run, growing, live, calls, chunks.addresses, options)
    nodes = run.read_table("nodes")
    _store_loads(run, calls, nodes, options)
    run.set_meta("edges", [list(edge) for edge in topology.edges(calls)])
    run.set_meta("quality", _quality(run))
    counters = live.counters() | {"match.calls_not_seen": missed, "follow.late_changes": len(late)}
    run.write_counters([(name, value, "") for name, value in counters.items()])
    growing.write_blocks(all_rows=True)


def check_latest(run: RunFile, first: int, evidence: Table, options: TraceOptions) -> None:
    """The self-check, of the transactions that began with call `first` or later, whose evidence is still
    there."""
    from tapscope.reconstruct.self_check import expectation

    trees = run.read_table("traces", ["id", *(c.name for c in TABLES["traces"])], "root >= ?", [first])
    members = run.read_table("trace_calls", where="call >= ?", params=[first])
    at = np.minimum(np.searchsorted(trees["id"], members["trace"]), max(len(trees["id"]) - 1, 0))
    whole = trees["id"][at] == members["trace"] if len(trees["id"]) else np.zeros(len(at), dtype=np.bool_)
    ids = members["call"][whole]

    def place(wanted: Ids) -> Ids:
        there = np.minimum(np.searchsorted(ids, wanted), max(len(ids) - 1, 0))
        return np.where((wanted >= 0) & (ids[there] == wanted), there, -1) if len(ids) else wanted

    calls = run.read_table("calls", where="id >= ?", params=[first])
    links = run.read_table("links", where="child >= ?", params=[first])
    calls, links = ({name: values[whole] for name, values in table.items()} for table in (calls, links))
    links |= {name: place(links[name]) for name in ("child", "parent", "runner_up")}
    trees["root"] = place(trees["root"])
    tree_calls = {"call": np.arange(len(ids)), "trace": at[whole]}
    found = expectation(
        calls, links, trees, tree_calls, evidence, options.evidence, threads=options.match_threads
    )
    run.set_meta("expected", None if found is None else found.as_json())


def _number_nodes(step: Step, live: Reconstructor, addresses: list[str]) -> None:
    """The numbers that the nodes have when all of them are known."""
    new = live.nodes.renumber(addresses)
    if (new != np.arange(len(new))).any():
        cases = " ".join(f"WHEN {old} THEN {number}" for old, number in enumerate(new.tolist()))
        sides = [f"{side} = CASE {side} {cases} END" for side in ("client_node", "server_node")]
        step.execute(f"UPDATE call SET {', '.join(sides)}")
    table, names = live.nodes.table(addresses)
    step.put("nodes", np.arange(len(names)), table)
    step.execute_each("UPDATE node SET name = ? WHERE id = ?", [(name, i) for i, name in enumerate(names)])


def _mend_calls(step: Step, run: RunFile, late: Ids) -> None:
    """Calls of messages that changed: their rows; what was matched stays."""
    step.execute("CREATE TEMP TABLE late (id INTEGER PRIMARY KEY)")
    step.execute_each("INSERT INTO late VALUES (?)", [(number,) for number in late.tolist()])
    asked = f"SELECT id FROM message WHERE kind = {int(MessageKind.REQUEST)} AND id IN late"
    answered = "SELECT request FROM message WHERE request >= 0 AND id IN late"
    step.execute("CREATE TEMP TABLE asked (id INTEGER PRIMARY KEY)")
    step.execute(f"INSERT INTO asked {asked} UNION {answered}")
    columns = ("id", *(column.name for column in TABLES["messages"]))
    found = step.execute(
        f"SELECT {', '.join(columns)} FROM message WHERE id IN asked OR request IN asked ORDER BY id"
    )
    calls = step.execute("SELECT request, id FROM call WHERE request IN asked")
    step.execute("DROP TABLE late")
    step.execute("DROP TABLE asked")
    if not calls:
        return
    dtypes = {"id": "int64"} | {column.name: column.dtype for column in TABLES["messages"]}
    messages = {
        name: np.array(values, dtype=dtypes[name])
        for name, values in zip(columns, zip(*found, strict=True), strict=True)
    }
    ids = messages.pop("id")
    request = messages["request"]
    at = np.minimum(np.searchsorted(ids, request), len(ids) - 1)
    messages["request"] = np.where((request >= 0) & (ids[at] == request), at, -1)
    mended = pair.calls(run.read_table("connections"), messages)
    times = ("request_end_ns", "response_begin_ns", "depart_ns")
    names = ("class_id", *times, "status", "flags", "response_bytes", "gone_ns")
    number = dict(calls)
    values = [mended[name].tolist() for name in names]
    response = np.where(mended["response"] >= 0, ids[mended["response"]], -1).tolist()
    which = [number.get(key, -1) for key in ids[mended["request"]].tolist()]
    assignments = ", ".join(f"{name} = ?" for name in ("response", *names))
    step.execute_each(
        f"UPDATE call SET {assignments} WHERE id = ?", list(zip(response, *values, which, strict=True))
    )


def _make_unknown(step: Step, roots: Ids) -> None:
    """Roots that may have had a parent: their traces are not complete."""
    listed = [(number,) for number in roots.tolist()]
    step.execute_each(f"UPDATE link SET kind = {int(LinkKind.UNKNOWN)} WHERE child = ?", listed)
    step.execute_each(
        "UPDATE trace SET complete = 0 WHERE id = (SELECT trace FROM trace_call WHERE call = ?)", listed
    )


def _mark_losses(
    run: RunFile,
    growing: GrowingRun,
    live: Reconstructor,
    calls: Table,
    addresses: list[str],
    options: TraceOptions,
) -> int:
    """What `reconstruct.run.assemble` marks: transactions that calls which the tap lost may belong to.
    Returns how many such calls there are."""
    lossy = "missing_to_server > 0 OR missing_to_client > 0"
    if not run.sql(f"SELECT 1 FROM connection WHERE {lossy} LIMIT 1"):
        return 0
    connections = run.read_table("connections")
    messages = run.read_table("messages", where=f"conn IN (SELECT id FROM connection WHERE {lossy})")
    links = run.read_table("links")
    stands_for = topology.stands_for(addresses, options.same_nodes)
    found = topology.Topology(run.read_table("nodes"), run.node_names(), calls, stands_for)
    lost = unseen.find(connections, messages, found)
    lacking, told = assumed.makers(len(lost), *live.lost_calls(lost), rows(calls))
    lacking |= unseen.may_lack(lost.only(~told), calls, links)
    orphans = np.flatnonzero(unseen.without_parent(lost, calls, links))
    with growing.step() as step:
        _make_unknown(step, orphans)
        step.execute_each(
            "UPDATE trace SET complete = 0 WHERE id = (SELECT trace FROM trace_call WHERE call = ?)",
            [(number,) for number in np.flatnonzero(lacking).tolist()],
        )
    return len(lost)


def _store_loads(run: RunFile, calls: Table, nodes: Table, options: TraceOptions) -> None:
    from tapscope.analyze.calls import Read, in_order_of_calls
    from tapscope.analyze.load import loads

    made = run.read_table("trace_calls", ["call", "intra_node_ns"])
    connections = run.read_table("connections")
    connections |= {"closed_ns": connection_ends(connections)}
    read = Read(calls, connections, in_order_of_calls(made, rows(calls)))
    run.write_counters(read.stay.counters)
    run.write_table("loads", loads(read, nodes, options.window_ns))


def _quality(run: RunFile) -> dict[str, float | int]:
    """As Reconstruction.quality."""
    links = run.read_table("links", ["kind", "probability"])
    kinds = np.bincount(links["kind"], minlength=3)
    sure = links["probability"][links["kind"] == LinkKind.LINKED]
    ((traces, complete),) = run.sql("SELECT count(*), coalesce(sum(complete), 0) FROM trace")
    return {
        "calls": len(links["kind"]),
        "roots": int(kinds[LinkKind.ROOT]),
        "linked": int(kinds[LinkKind.LINKED]),
        "unknown": int(kinds[LinkKind.UNKNOWN]),
        "expected_edge_accuracy": float(sure.mean()) if len(sure) else 1.0,
        "traces": traces,
        "complete_traces": complete,
    }
