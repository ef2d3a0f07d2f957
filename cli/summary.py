"""What `trace` and `stats` say about a run: nodes with their queues, what the tap lost, and whether that is
too much."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tapscope.analyze.losses import loss_summary
from tapscope.hostmon.clock_layer import read_clocks
from tapscope.hostmon.fit import misfits
from tapscope.reconstruct.match.refusal import Refusal
from tapscope.report import account
from tapscope.store.codes import LinkKind, Protocol
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

MISSING_LIMIT = 0.01
"""Share of stream bytes that the tap never saw above which the input's quality is called low."""

UNPARSED_LIMIT = 0.05
"""Share of seen stream bytes that are in no message above which the input's quality is called low."""

HINTED = 0.005
"""Share of links expected to be wrong above which it is told how many to refuse for so few."""

IDLE_LIMIT = 0.1
"""Share of a node's calls that were made while it served nobody above which that is told."""


def node_summary(run: RunFile) -> list[dict[str, Any]]:
    """One record per called node: calls, queue length, response time, and how well its calls are linked."""
    nodes = run.read_table("nodes")
    names = run.node_names()
    calls = run.read_table("calls", ["server_node", "protocol", "arrive_ns", "depart_ns"])
    links = run.read_table("links", ["child", "kind", "probability"])
    loads = run.read_table("loads", ["node", "width_ns", "load", "max"])
    known = np.zeros(len(calls["arrive_ns"]), dtype=np.bool_)
    probability = np.full(len(known), np.nan)
    chosen = links["kind"] != LinkKind.UNKNOWN
    known[links["child"][chosen]] = True
    probability[links["child"][chosen]] = links["probability"][chosen]
    answered = calls["depart_ns"] >= 0
    measured = answered & (calls["depart_ns"] >= calls["arrive_ns"])  # else the clock went back
    stay_ms = (calls["depart_ns"] - calls["arrive_ns"]) / 1e6
    records = []
    for node in np.unique(calls["server_node"]):
        here = calls["server_node"] == node
        at = loads["node"] == node
        certain = probability[here & known]
        records.append(
            {
                "node": names[node],
                "protocol": Protocol(int(nodes["protocol"][node])).name.lower(),
                "depth": int(nodes["depth"][node]),
                "calls": int(here.sum()),
                "mean_queue": _mean(loads["load"][at]),
                "max_queue": int(loads["max"][at].max(initial=0)),
                "mean_response_ms": _mean(stay_ms[here & measured]),
                "unanswered": int((here & ~answered).sum()),
                "linked_pct": 100.0 * float(known[here].mean()),
                "mean_probability": _mean(certain),
            }
        )
    return sorted(records, key=lambda record: (record["depth"], record["node"]))


def _mean(values: np.ndarray[Any, Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def loss_line(loss: dict[str, Any]) -> str:
    """The loss summary in one line."""
    if loss["span_rows"] is not None:
        return (
            f"{loss['span_rows']} rows of span tables, {loss['span_rows_left_out']} left out; "
            f"{loss['unanswered_calls']} calls without an end"
        )
    dropped = loss["dropped_packets"]
    drops = "drops of the recorder not known" if dropped is None else f"{dropped} dropped by the recorder"
    return (
        f"{loss['packets']} packets, {drops}; {loss['bytes']} stream bytes: "
        f"{100 * loss['missing_share']:.3g} % missing, {100 * loss['unparsed_share']:.3g} % unparsed; "
        f"{loss['duplicates']} duplicates, {loss['retransmits']} retransmissions; "
        f"{loss['unanswered_calls']} calls unanswered, {loss['lost_responses']} responses lost"
    )


def expected_line(expected: dict[str, Any] | None, checked: bool) -> str:
    """What accuracy to expect, in one line; empty where that was not asked (`checked`)."""
    if expected is None:
        unknown = "Expected right: not known; too few transactions are sure enough to be matched again"
        return unknown if checked else ""
    sample = expected["sample"]
    text = (
        f"Expected right: {100 * expected['edges']:.1f} % of links, {100 * expected['paths']:.1f} % of whole "
        f"transactions"
    )
    if expected["twice_edges"] is not None:
        text += (
            f"; with twice as many in flight {100 * expected['twice_edges']:.1f} and "
            f"{100 * expected['twice_paths']:.1f} %"
        )
    return f"{text} (self-check, {sample['calls']} calls matched again)"


def quality_problems(loss: dict[str, Any], calls: int) -> list[str]:
    """Why the input's quality is below the threshold, in words; empty when it is good enough."""
    problems = []
    if loss["damaged_files"]:
        problems.append(
            f"{loss['damaged_files']} capture files are damaged, and what lies behind the damage was not "
            "read. Copy them again, or repair them"
        )
    if loss["lost_segments_share"] > MISSING_LIMIT:
        problems.append(
            f"{100 * loss['lost_segments_share']:.1f} % of the segments of the spool are damaged or missing "
            f"(threshold {100 * MISSING_LIMIT:g} %). Restore them from a copy"
        )
    rows = loss["span_rows"]
    if rows is not None:
        left_out = loss["span_rows_left_out"]
        if not rows + left_out:
            problems.append("the span table has no rows: there is nothing to match")
        elif left_out > MISSING_LIMIT * (rows + left_out):
            problems.append(
                f"{left_out} of {rows + left_out} rows of the span table were left out (threshold "
                f"{100 * MISSING_LIMIT:g} %). `tapscope stats` names the first line of each kind"
            )
    elif calls == 0:
        problems.append(
            f"no call of a known protocol in {loss['connections']} TCP connections. Check the capture "
            "filter, or name the protocol of a port, for example --port-map 8009=ajp"
        )
    elif loss["unparsed_share"] > UNPARSED_LIMIT:
        problems.append(
            f"{100 * loss['unparsed_share']:.1f} % of the stream bytes are in no message (threshold "
            f"{100 * UNPARSED_LIMIT:g} %). See `tapscope stats` for the connections, and --port-map"
        )
    if loss["missing_share"] > MISSING_LIMIT:
        problems.append(
            f"{100 * loss['missing_share']:.1f} % of the stream bytes were never seen by the tap (threshold "
            f"{100 * MISSING_LIMIT:g} %): queue lengths and links are less sure. "
            + (
                "Packets were cut by the snap length: record whole ones (-s 0)"
                if loss["cut_packets"]
                else "Give the recorder a larger buffer"
            )
        )
    return problems


def summary(run: RunFile) -> dict[str, Any]:
    """Everything that the end of `trace` shows."""
    loss = loss_summary(run)
    calls = run.count("calls")
    problems = quality_problems(loss, calls)
    threads = run.meta("threads", {})
    if not threads.get("rest_matched"):
        problems += threads.get("refused", [])
    return {
        "run": str(run.path),
        "bytes_on_disk": run.path.stat().st_size,
        "complete": bool(run.meta("complete", False)),
        "stage": run.meta("stage", "none"),
        "following": run.meta("following", {}),
        "matched": run.matched,
        "nodes": node_summary(run),
        "calls": calls,
        "traces": run.count("traces"),
        "quality": run.meta("quality", {}),
        "expected": run.meta("expected"),
        "self_check": "expected" in run.all_meta(),
        "refusal": _refusal(run),
        "notes": [*_unseen(run), *_made_while_idle(run), *_too_large(run), *_far(run), *_backwards(run)],
        "hosts": sorted({table.host for table in run.dynamic_tables()}),
        "seconds": run.meta("seconds", {}),
        "loss": loss,
        "problems": problems,
        "host_problems": [str(one) for one in misfits(run)],
    }


def _refusal(run: RunFile) -> dict[str, Any]:
    """What was not linked because it was too unsure: `refused` links, those below `least`. `wrong`: the share
    of the others that is expected to be wrong; where it is above HINTED, `hint` says what it takes to be
    below: the links that would be `refused`, those below `least`."""
    links = run.read_table("links", ["kind", "probability"])
    sure = links["probability"][links["kind"] == LinkKind.LINKED]
    refused = sum(int(value) for name, value, _ in run.counters() if name == "match.refused")
    wrong = float(1.0 - sure.mean()) if len(sure) else 0.0
    record = {"refused": refused, "linked": len(sure), "least": float(sure.min(initial=1.0)), "wrong": wrong}
    if wrong <= HINTED:
        return record | {"hint": None}
    least = Refusal(max_wrong_joins=HINTED).least(sure)
    return record | {"hint": {"refused": int((sure < least).sum()), "least": least}}


def refusal_line(refusal: dict[str, Any]) -> str:
    """What was refused, or could be, in one line; empty where there is nothing to say."""
    if refusal["refused"]:
        share = refusal["refused"] / (refusal["refused"] + refusal["linked"])
        return (
            f"Refused: {100 * share:.1f} % of links, those below {refusal['least']:.3g}; of the others "
            f"{100 * refusal['wrong']:.2g} % are expected to be wrong"
        )
    if refusal["hint"] is None:
        return ""
    share = refusal["hint"]["refused"] / refusal["linked"]
    return (
        f"Expected wrong: {100 * refusal['wrong']:.2g} % of links; --max-wrong-joins {100 * HINTED:g}% would "
        f"refuse {100 * share:.1f} % of them, those below {refusal['hint']['least']:.3g}"
    )


def _unseen(run: RunFile) -> list[str]:
    """Addresses of --same-node that nobody had."""
    known = set(run.addresses())
    named = itertools.chain.from_iterable(run.meta("options", {}).get("same_nodes", []))
    return [f"--same-node: {address} is in no connection" for address in sorted(set(named) - known)]


def _too_large(run: RunFile) -> list[str]:
    """Where the matcher fell back to less than joint assignment."""
    pairs = sum(int(value) for name, value, _ in run.counters() if name == "match.pairs_too_large")
    told = (
        f"{pairs} times two requests made too many calls together to be weighed jointly: links between them "
    )
    return [f"{told}are less sure than they say"] if pairs else []


def _far(run: RunFile) -> list[str]:
    """Calls that are in no series, as their stamps would stretch it over days without a call."""
    calls = sum(int(value) for name, value, _ in run.counters() if name == "load.far_stamp_excluded")
    if not calls:
        return []
    if any(source["kind"] == "spans" for source in run.sources()):
        return [
            f"{calls} calls are stamped days away from all others of their callee and in no queue length or "
            "throughput. Put their times right in the table, or leave these rows out"
        ]
    return [
        f"{calls} calls are stamped days away from all others and in no queue length, throughput or finding. "
        "Put their stamps right (editcap -t), or leave them out (editcap -A, -B)"
    ]


def _backwards(run: RunFile) -> list[str]:
    """Calls that end before they begin."""
    counted = {name: int(value) for name, value, _ in run.counters()}
    calls, late = counted.get("load.negative_stay_excluded", 0), counted.get("source.late_packet", 0)
    if not calls:
        return []
    why = "" if not late else f"; {late} packets are stamped before others that came earlier"
    return [
        f"{calls} calls end before they begin, and are in no queue length or response time{why}: a clock was "
        "set back. Captures from before and after that are best traced apart"
    ]


def _made_while_idle(run: RunFile) -> list[str]:
    """Nodes that made many calls while they served nobody, which are transactions of their own then."""
    calls = run.read_table("calls", ["client_node", "server_node"])
    root = np.zeros(len(calls["client_node"]), dtype=np.bool_)
    links = run.read_table("links", ["child", "kind"])
    root[links["child"][links["kind"] == LinkKind.ROOT]] = True
    names = run.node_names()
    told = []
    for node in np.intersect1d(calls["client_node"], calls["server_node"]).tolist():
        made = calls["client_node"] == node
        alone = int((made & root).sum())
        if alone > IDLE_LIMIT * made.sum():
            told.append(
                f"{alone} of {int(made.sum())} calls that {names[node]} made came while it served nobody: "
                "background work, a server with several addresses (--same-node), or taps whose clocks differ"
            )
    return told


def exit_code(record: dict[str, Any]) -> ExitCode:
    """Exit status of a `trace` whose summary this is."""
    return ExitCode.LOW_QUALITY if record["problems"] else ExitCode.DONE


def listener_loss(run: RunFile) -> list[dict[str, Any]]:
    """The v_loss view: what was lost, per listener."""
    names, rows = run.query("SELECT * FROM v_loss")
    return [dict(zip(names, row, strict=True)) for row in rows]


def statistics(run: RunFile) -> dict[str, Any]:
    """Everything that `stats` shows."""
    return summary(run) | {
        "sources": run.sources(),
        "account": account.as_record(*account.lines(run)),
        "taps": account.tap_points(run),
        "tap_points": account.per_tap_point(run),
        "listeners": listener_loss(run),
        "clocks": [vars(one) for one in read_clocks(run)],
        "counters": [{"name": n, "value": v, "unit": u} for n, v, u in run.counters()],
        "meta": {k: v for k, v in run.all_meta().items() if k not in ("manifest", "edges")},
    }
