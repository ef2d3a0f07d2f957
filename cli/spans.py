"""`tapscope trace --spans`: span tables instead of packets, into a run file like any other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapscope import __version__
from tapscope.cli import pipeline
from tapscope.cli.output import Progress
from tapscope.store.codes import EvidenceMode
from tapscope.store.runfile import RunFile
from tapscope.store.tables import empty


def trace(
    paths: Sequence[str | Path],
    out: str | Path,
    options: pipeline.TraceOptions,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Read span tables, match each service by its own clock, and store everything in a new run file."""
    from tapscope.reconstruct import span_tables, spans

    begun = time.monotonic()
    read = spans.read(paths, keep_text=options.keep_text)
    given = span_tables.tables(read)
    with RunFile.create(out, force=force) as run:
        seconds = {"read": round(time.monotonic() - begun, 3)}
        run.set_meta("tapscope_version", __version__)
        run.set_meta("options", options.record() | {"evidence": EvidenceMode.TIMING.name.lower()})
        run.set_meta("inputs", [str(path) for path in paths])
        run.write_sources(read.sources)
        run.write_counters([(name, value, "rows") for name, value in read.counters.items()])
        run.write_addresses(given.addresses)
        run.write_classes(given.classes)
        run.write_table("connections", given.connections)
        run.write_table("messages", given.messages)
        run.set_meta("stage", "store")
        begun = time.monotonic()
        made = span_tables.trace(
            read,
            given,
            refusal=options.refusal,
            threads=options.match_threads,
            progress=pipeline.told(progress, "matching calls"),
        )
        pipeline.store_reconstruction(run, made, given.connections, options)
        run.write_columns("span", span_tables.span_rows(read, given))
        run.write_columns("annotation", read.annotations)
        seconds["reconstruct"] = round(time.monotonic() - begun, 3)
        run.set_meta("stage", "reconstruct")
        if options.self_check and not read.parent_id:  # else nothing was matched
            begun = time.monotonic()
            calls = span_tables.matched_calls(read, given)
            by_time = replace(options, evidence=EvidenceMode.TIMING)
            nothing = empty("evidence")
            pipeline.store_expectation(run, made, calls, nothing, by_time, progress, given.made)
            seconds["self-check"] = round(time.monotonic() - begun, 3)
            run.set_meta("stage", "self-check")
        run.set_meta("seconds", seconds)
        run.set_meta("complete", True)
    return Path(out)
