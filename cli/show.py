"""How records look as tables: column titles with units, in the order a reader wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapscope.analyze.tcp_events import told
from tapscope.cli.output import note, print_json, print_table, utc
from tapscope.cli.reading import unfinished
from tapscope.store.codes import Direction, TcpEventKind

NODE_COLUMNS = {
    "node": "node",
    "protocol": "protocol",
    "calls": "calls",
    "mean_queue": "mean queue",
    "max_queue": "max queue",
    "mean_response_ms": "mean response ms",
    "unanswered": "unanswered",
    "linked_pct": "linked %",
    "mean_probability": "mean probability",
}
LOSS_COLUMNS = {
    "server_addr": "listener",
    "server_port": "port",
    "protocol": "protocol",
    "connections": "connections",
    "midstream": "midstream",
    "bytes": "bytes",
    "missing_bytes": "missing",
    "unparsed_bytes": "unparsed",
    "retransmits": "retransmitted",
    "syn_retransmits": "SYN again",
    "duplicates": "duplicates",
}
TAP_POINT_COLUMNS = {
    "tap_point": "tap point",
    "packets": "packets",
    "bytes": "captured bytes",
    "connections": "connections first seen here",
    "duplicates": "duplicates",
}
TAP_COLUMNS = {
    "tap_point": "tap point",
    "protocol": "protocol",
    "connections": "connections",
    "bytes": "bytes",
    "missing": "missing",
    "unparsed": "unparsed",
    "retransmits": "retransmitted",
    "duplicates": "duplicates",
}


def records(title: str, listed: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print records with these columns (key -> title)."""
    if listed:
        print_table(title, list(columns.values()), [[record[key] for key in columns] for record in listed])
    else:
        print(f"{title}: none")


def nodes(listed: Sequence[Mapping[str, Any]]) -> None:
    """The nodes of a run."""
    records("Nodes", listed, NODE_COLUMNS)


def summary(record: Mapping[str, Any]) -> None:
    """The end of `trace`: nodes, traces, losses, where the data lies."""
    from tapscope.cli.summary import expected_line, loss_line, refusal_line

    nodes(record["nodes"])
    hosts = ", ".join(record["hosts"]) or "none"
    traces = f"in {record['traces']} traces" if record["matched"] else "that were not matched"
    print(f"{record['calls']} calls {traces}; host logs of: {hosts}")
    if expected := expected_line(record["expected"], record["self_check"]):
        print(expected)
    if refused := refusal_line(record["refusal"]):
        print(refused)
    print(loss_line(record["loss"]))
    if not record["complete"]:
        print(unfinished(record["stage"], record["following"]))
    print(
        f"Stored in {record['run']} ({record['bytes_on_disk'] / 1e6:.1f} MB). "
        f"Next: tapscope report {record['run']} -o report.html"
    )


def stats(record: Mapping[str, Any]) -> None:
    """The whole of `stats`."""
    from tapscope.cli.summary import loss_line

    print_table(
        "Inputs",
        ("file", "kind", "format", "bytes", "packets", "first (UTC)", "last (UTC)"),
        [
            (
                s["path"],
                s["kind"],
                s["format"],
                s["bytes"],
                s.get("packets"),
                utc(s["first_ns"]),
                utc(s["last_ns"]),
            )
            for s in record["sources"]
        ],
    )
    nodes(record["nodes"])
    if record["loss"]["span_rows"] is None:
        _losses(record)
    if record["clocks"]:
        clocks(record["clocks"])
    if record["counters"]:
        print_table("Counters", ("name", "value", "unit"), [list(c.values()) for c in record["counters"]])
    print(loss_line(record["loss"]))
    for warning in record["loss"]["warnings"]:
        print(warning)
    for line in record["notes"]:
        print(f"Note: {line}.")
    for problem in record["problems"]:
        print(f"Quality: {problem}.")
    for problem in record["host_problems"]:
        print(f"Hosts: {problem}")
    if not record["complete"]:
        print(unfinished(record["stage"], record["following"]))


def clocks(listed: Sequence[Mapping[str, Any]]) -> None:
    """Clocks of the hosts against the tap's."""
    rows = [
        (
            one["host"],
            utc(one["from_ns"]),
            utc(one["to_ns"]),
            one["offset_ns"] / 1e6 if one["points"] else None,
            one["error_ns"] / 1e6 if one["points"] else None,
            one["drift_ppb"] / 1e3 if one["points"] else None,
            one["drift_error_ppb"] / 1e3 if one["points"] else None,
            "taken off" if one["applied"] else "left",
            one["method"] if one["points"] else "",
            one["reason"],
        )
        for one in listed
    ]
    head = ("host", "from (UTC)", "to (UTC)", "ahead ms", "+/- ms", "drift ppm", "+/- ppm", "offset is")
    print_table("Clocks of hosts", (*head, "measured by", "why not"), rows)


def _losses(record: Mapping[str, Any]) -> None:
    """What the tap lost, from the wire to the messages."""
    account = record["account"]
    print_table(
        "What was lost where",
        ("stage", "what", "packets", "bytes"),
        [[line["stage"], line["what"], line["packets"], line["bytes"]] for line in account["lines"]],
    )
    if account["balanced"]:
        whole = not record["loss"]["damaged_files"]
        which = "captured byte" if whole else "byte that was read"
        print(f"Every {which} is in a message or named above; the sums agree.")
    for disagreement in account["disagreements"]:
        print(f"The sums do not agree: {disagreement}.")
    records("Per tap point", record["taps"], TAP_POINT_COLUMNS)
    records("Per tap point and protocol", record["tap_points"], TAP_COLUMNS)
    records("Lost or not understood, per listener", record["listeners"], LOSS_COLUMNS)


def queues(listed: Sequence[Mapping[str, Any]]) -> None:
    """One line per node."""
    columns = {
        "node": "node",
        "mean": "mean queue",
        "p95": "p95",
        "p99": "p99",
        "highest": "highest window",
        "at": "at (UTC)",
        "max": "max",
        "completions": "completed",
        "completions_per_s": "per s",
        "mean_response_ms": "mean response ms",
        "max_response_ms": "longest ms",
    }
    width = f" ({listed[0]['width_ms']:g} ms windows)" if listed else ""
    records(f"Queues{width}", [r | {"at": utc(r["highest_ns"])} for r in map(dict, listed)], columns)


def series(listed: Sequence[Mapping[str, Any]]) -> None:
    """One line per window."""
    columns = {
        "node": "node",
        "at": "window (UTC)",
        "load": "queue",
        "max": "max",
        "arrivals": "arrived",
        "completions": "completed",
        "mean_ms": "mean response ms",
        "max_ms": "longest ms",
    }
    rows = [
        r
        | {
            "at": utc(r["window_start_ns"]),
            "mean_ms": _ms(r["pit_mean_ns"]),
            "max_ms": _ms(r["pit_max_ns"]),
        }
        for r in map(dict, listed)
    ]
    records("Windows", rows, columns)


def traces(listed: Sequence[Mapping[str, Any]]) -> None:
    """One line per transaction."""
    columns = {
        "id": "id",
        "at": "begin (UTC)",
        "ms": "response ms",
        "calls": "calls",
        "complete": "complete",
        "probability": "probability",
        "status": "status",
        "client": "client",
        "class": "class",
    }
    rows = [
        r
        | {
            "at": utc(r["begin_ns"]),
            "ms": _ms(r["response_time_ns"]),
            "complete": bool(r["complete"]),
            "client": f"{r['src']}:{r['sport']}",
        }
        for r in map(dict, listed)
    ]
    records("Transactions", rows, columns)


def tree(listed: Sequence[Mapping[str, Any]]) -> None:
    """One line per call, indented by depth."""
    columns = {
        "offset": "offset ms",
        "ms": "response ms",
        "inside": "in node ms",
        "node": "node",
        "sure": "probability",
        "what": "call",
    }
    if any(one["tcp"] for one in listed):
        columns["tcp_words"] = "what TCP did meanwhile"
    rows = [
        r
        | {
            "offset": r["offset_ns"] / 1e6,
            "ms": _ms(r["response_time_ns"]),
            "inside": _ms(r["intra_node_ns"]),
            "sure": r["probability"],
            "what": "  " * r["depth"] + f"{r['protocol']} {r['class']}",
            "tcp_words": tcp_words(r["tcp"]),
        }
        for r in map(dict, listed)
    ]
    records("Calls", rows, columns)


def tcp_words(met: Sequence[Mapping[str, Any]]) -> str:
    """What TCP did, in words, in order of time."""
    return "; ".join(
        told(TcpEventKind[one["kind"].upper()], Direction[one["direction"].upper()])
        + (f" ({(one['end_ns'] - one['begin_ns']) / 1e6:.1f} ms)" if one["end_ns"] > one["begin_ns"] else "")
        for one in sorted(met, key=lambda one: (one["begin_ns"], one["end_ns"]))
    )


def _ms(value: float | None) -> float | None:
    return None if value is None or value < 0 else value / 1e6


def loaded_hosts(listed: Sequence[Mapping[str, Any]]) -> None:
    """Host logs that were loaded."""
    columns = {
        "host": "host",
        "format": "format",
        "samples": "samples",
        "rows": "rows",
        "first": "first (UTC)",
        "last": "last (UTC)",
        "made": "tables",
        "path": "file",
    }
    rows = [
        r | {"first": utc(r["first_ns"]), "last": utc(r["last_ns"]), "made": len(r["tables"])}
        for r in map(dict, listed)
    ]
    records("Host logs", rows, columns)


def host_log(log: Mapping[str, Any]) -> None:
    """What a reader made of a host log that is not loaded yet."""
    columns = {
        "kind": "table",
        "rows": "rows",
        "first": "first (UTC)",
        "last": "last (UTC)",
        "named": "columns",
    }
    rows = []
    for table in log["tables"]:
        named = ", ".join(f"{name} [{unit}]" if unit else name for name, unit in table["columns"].items())
        rows.append(
            dict(table) | {"first": utc(table["first_ns"]), "last": utc(table["last_ns"]), "named": named}
        )
    records(f"{log['format']} {log['host']}".strip(), rows, columns)
    if log["counters"]:
        print_table("Counted", ("name", "value"), sorted(log["counters"].items()))


def validation(
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]],
    verdict: str,
    failures: Sequence[str],
    undecided: Sequence[str],
) -> None:
    """Tables of a validation and its verdict with the reasons."""
    for title, head, rows in tables:
        print_table(title, head, rows)
    print(f"Validation {verdict}.")
    for reason in (*failures, *undecided):
        print(f"  {reason}")


def span_validation(
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]], counters: Mapping[str, int]
) -> None:
    """Tables of a span table's validation, and what could not be judged."""
    for title, head, rows in tables:
        print_table(title, head, rows)
    for name, value in counters.items():
        print(f"  {name.replace('_', ' ')}: {value}")


def comparison(
    differs: Mapping[str, tuple[Any, Any]],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]],
    statement: str,
    notes: Sequence[str],
) -> None:
    """What two kinds of runs differ in, and what the study could have seen."""
    for name, (of_a, of_b) in differs.items():
        print(f"{name}: {of_a} in A, {of_b} in B")
    for title, head, rows in tables:
        print_table(title, head, rows)
    if statement:
        print(f"{statement}.")
    for text in notes:
        note(f"tapscope: {text}.")


def interfaces(names: Sequence[str], as_json: bool) -> None:
    """Interfaces, one per line."""
    if as_json:
        print_json(list(names))
    else:
        print("\n".join(names))


def live(record: Mapping[str, Any]) -> None:
    """The end of a live capture, in tcpdump's words."""
    print(f"{record['packets']} packets captured")
    for key, words in (
        ("received", "received by filter"),
        ("dropped_by_kernel", "dropped by kernel"),
        ("dropped_by_interface", "dropped by interface"),
    ):
        if record[key] is not None:
            print(f"{record[key]} packets {words}")
    if record["messages"] is not None:
        protocols = ", ".join(f"{name} {count}" for name, count in record["messages_by_protocol"].items())
        print(f"{record['messages']} messages read" + (f" ({protocols})" if protocols else ""))
    for key in ("packet_file", "spool", "run"):
        if record[key] not in (None, "-") and not (key == "packet_file" and record["packet_file_lost"]):
            print(f"Stored in {record[key]}")
