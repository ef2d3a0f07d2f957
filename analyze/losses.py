"""What the tap lost or did not understand, in total: what every judgement of a run begins with."""

from __future__ import annotations

from typing import Any

from tapscope.store.codes import CallFlag
from tapscope.store.runfile import RunFile

DROPS = ("dropped_by_kernel", "dropped_by_interface")


def loss_summary(run: RunFile) -> dict[str, Any]:
    """What the tap lost or did not understand, in total."""
    totals = run.sql(
        "SELECT count(*), coalesce(sum(connections), 0), coalesce(sum(midstream), 0), "
        "coalesce(sum(bytes), 0), "
        "coalesce(sum(missing_bytes), 0), coalesce(sum(unparsed_bytes), 0), coalesce(sum(retransmits), 0), "
        "coalesce(sum(syn_retransmits), 0), coalesce(sum(duplicates), 0) FROM v_loss"
    )[0]
    names = (
        "listeners",
        "connections",
        "midstream",
        "bytes",
        "missing_bytes",
        "unparsed_bytes",
        "retransmits",
        "syn_retransmits",
        "duplicates",
    )
    record: dict[str, Any] = dict(zip(names, map(int, totals), strict=True))
    captures = [s for s in run.sources() if s["kind"] == "capture"]
    record["packets"] = sum(int(s.get("packets", 0)) for s in captures)
    record["cut_packets"] = sum(int(s.get("truncated_packets", 0)) for s in captures)
    drops = [s[name] for s in captures for name in DROPS if s.get(name) is not None]
    recorded = run.meta("manifest", {}).get("capture", {})
    if not drops and isinstance(recorded, dict) and isinstance(recorded.get("dropped_by_kernel"), int):
        drops = [recorded["dropped_by_kernel"]]
    record["dropped_packets"] = sum(map(int, drops)) if drops else None
    tables = [s for s in run.sources() if s["kind"] == "spans"]
    record["span_rows"] = sum(int(s["rows"]) for s in tables) if tables else None
    record["span_rows_left_out"] = sum(int(s["rows_left_out"]) for s in tables)
    record["warnings"] = [f"{s['path']}: {s['warning']}" for s in captures + tables if s.get("warning")]
    record["messages"] = run.count("messages")
    for name, flag in (("unanswered_calls", CallFlag.UNANSWERED), ("lost_responses", CallFlag.LOST_RESPONSE)):
        record[name] = int(run.sql("SELECT count(*) FROM call WHERE flags & ?", (int(flag),))[0][0])
    counted = {name: int(value) for name, value, _ in run.counters()}
    record["damaged_files"] = counted.get("source.bad_record", 0)
    lost = sum(counted.get(f"spool.{how}_segments", 0) for how in ("damaged", "missing"))
    record["lost_segments_share"] = lost / (lost + counted.get("spool.segments", 0)) if lost else 0.0
    seen = record["bytes"]
    sent = seen + record["missing_bytes"]
    record["missing_share"] = record["missing_bytes"] / sent if sent else 0.0
    record["unparsed_share"] = record["unparsed_bytes"] / seen if seen else 0.0
    return record
