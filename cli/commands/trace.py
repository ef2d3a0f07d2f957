"""`tapscope trace`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import (
    JSON,
    KEEP_TEXT,
    PORT_MAP,
    SAME_NODE,
    TLS_KEYLOG,
    TLS_KEYLOG_WAIT,
    Number,
    Share,
    time_option,
)
from tapscope.cli.output import note, print_json, progress_bar
from tapscope.store.codes import EvidenceMode


@click.command(short_help="Packets to traces and queue lengths, into one run file.")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "output",
    metavar="RUN.db",
    required=True,
    type=click.Path(path_type=Path),
    help="Run file to write (SQLite).",
)
@click.option(
    "--evidence",
    type=click.Choice(["all", "noids", "timing"]),
    default="all",
    show_default=True,
    help="What the matcher may use: all content; noids: no values that look like propagated request ids "
    "(UUID, long hex or base64); timing: times, connections and classes only.",
)
@click.option(
    "--min-probability",
    type=Number(0, 1),
    default=0.0,
    show_default=True,
    help="Links less sure than this are stored as unknown.",
)
@click.option(
    "--max-wrong-joins",
    type=Share(),
    default=1.0,
    metavar="SHARE",
    help="Store the least sure links as unknown, until at most this share of the rest, for example 0.5%, is "
    "expected to be wrong.",
)
@time_option("--window", default="50ms", help="Width of the load windows.")
@SAME_NODE
@PORT_MAP
@TLS_KEYLOG
@TLS_KEYLOG_WAIT
@time_option(
    "--reorder-window",
    default="10ms",
    help="How far packets of one capture may be out of order when several are merged.",
)
@click.option(
    "--threads",
    type=click.IntRange(0, 16),
    default=1,
    show_default=True,
    help="Threads that read packets, at most two; 0: as there are cores. The result is the same.",
)
@KEEP_TEXT
@click.option("--keep-evidence", is_flag=True, help="Store the salted hashes that the matcher used, too.")
@click.option(
    "--follow",
    is_flag=True,
    help="Read on while INPUT grows (capture files, a spool, - for standard input), and store "
    "transactions when they are over, until Ctrl-C or SIGTERM.",
)
@click.option(
    "--spans",
    metavar="FILE.csv",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Instead of packets read a span table, also gzipped, or a folder with a CTF trace of annotated "
    "spans (docs/spans.md). May be given several times.",
)
@click.option(
    "--thread-log",
    "thread_logs",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Thread logs of the servers (files or folders, docs/threads.md): parents by them, exactly, and "
    "nothing is matched. May be given several times.",
)
@click.option(
    "--match-rest",
    is_flag=True,
    help="With --thread-log: what the logs do not tell (servers without a log, or driven by events) is "
    "matched after all, with a probability below 1.",
)
@click.option(
    "--match/--no-match",
    default=True,
    show_default=True,
    help="Find the parent of every call. Without: calls, response times and queue lengths only.",
)
@click.option(
    "--self-check/--no-self-check",
    default=True,
    show_default=True,
    help="Match a sample again with known parents, for the accuracy to expect.",
)
@click.option(
    "--match-threads",
    type=click.IntRange(0, 256),
    default=0,
    show_default=True,
    help="Threads that match, each one node; 0: as many as there are cores. The result is the same.",
)
@click.option("--force", is_flag=True, help="Replace the run file if it exists.")
@JSON
def trace(
    inputs: tuple[Path, ...],
    output: Path,
    evidence: str,
    min_probability: float,
    max_wrong_joins: float,
    window: int,
    same_nodes: tuple[tuple[str, ...], ...],
    port_map: dict[int, str],
    tls_keylog: Path | None,
    tls_keylog_wait_ns: int,
    reorder_window: int,
    threads: int,
    keep_text: bool,
    keep_evidence: bool,
    follow: bool,
    spans: tuple[Path, ...],
    thread_logs: tuple[Path, ...],
    match_rest: bool,
    match: bool,
    self_check: bool,
    match_threads: int,
    force: bool,
    as_json: bool,
) -> int:
    """Rebuild calls, traces and queue lengths from packets alone.

    INPUT is a capture file (pcap or pcapng, also compressed), several of them (merged in time order), or a
    run directory: then the captures in it are read, the host logs in its hosts/ are loaded, and its
    manifest.json describes the run. Event logs are not touched; compare with them by `tapscope validate`.
    With --spans a table of calls is matched instead, each service by its own clock (of a CTF trace the
    parents are known). With --thread-log the parents are not matched but read off logs of the servers'
    threads.

    With --follow other commands can read RUN.db meanwhile; at the end it is what a trace of the whole input
    gives. Transactions come a bounded time after they end (docs/matching.md).

    Prints a table of the nodes found, how much to expect right, and what the tap lost. Exit status 3: done,
    but too much is missing or not understood.
    """
    from tapscope.cli import pipeline, show, summary
    from tapscope.cli import spans as span_pipeline
    from tapscope.store.runfile import RunFile

    if bool(inputs) == bool(spans):
        raise click.UsageError("Give either INPUT (captures, a run directory) or --spans FILE.csv.")
    if spans and (port_map or tls_keylog or follow or keep_evidence or same_nodes):
        raise click.UsageError(
            "A span table holds no packets: --port-map, --tls-keylog, --follow, --keep-evidence and "
            "--same-node do not apply."
        )
    if spans and thread_logs:
        raise click.UsageError("Thread logs go with packets: give either --thread-log or --spans.")
    if match_rest and not thread_logs:
        raise click.UsageError("--match-rest is about what --thread-log leaves open; give both.")
    if follow and max_wrong_joins < 1:
        raise click.UsageError(
            "--max-wrong-joins needs all links, which --follow does not have: give --min-probability."
        )
    if not match and (spans or thread_logs):
        raise click.UsageError("--no-match is for packets alone: --spans and --thread-log give parents.")
    options = pipeline.TraceOptions(
        EvidenceMode[evidence.upper()],
        min_probability,
        max_wrong_joins,
        window,
        port_map,
        keep_text,
        keep_evidence,
        tls_keylog,
        tls_keylog_wait_ns,
        reorder_window,
        follow,
        self_check and match and not thread_logs,
        threads,
        thread_logs,
        match_rest,
        same_nodes,
        match,
        match_threads,
    )
    with progress_bar() as progress:
        if spans:
            path = span_pipeline.trace(spans, output, options, force=force, progress=progress)
        else:
            path = pipeline.trace(inputs, output, options, force=force, progress=progress)
    with RunFile.open(path) as run:
        record = summary.summary(run)
    if as_json:
        print_json(record)
    else:
        show.summary(record)
    for warning in record["loss"]["warnings"]:
        note(f"tapscope: {warning}")
    for told in record["notes"]:
        note(f"tapscope: {told}.")
    for problem in record["problems"]:
        note(f"tapscope: {problem}.")
    for problem in record["host_problems"]:
        note(f"tapscope: {problem}")
    return summary.exit_code(record)
