"""`tapscope validate`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN, Number, path_option, set_option, time_option
from tapscope.store.errors import ExitCode, TapscopeError


@click.command(short_help="Compare a run with the servers' own logs.")
@RUN
@path_option("--events", metavar="DIR", help="Folder with the logs of Apache, Tomcat and MariaDB.")
@path_option(
    "--threads",
    metavar="DIR",
    help="Folder with logs of the servers' threads (docs/threads.md): they say when each request came and "
    "its answer went, by system calls.",
)
@path_option(
    "--truth",
    metavar="FILE",
    help="True paths (calls.csv[.gz]); looked for in ../truth/ of the logs when not given.",
)
@path_option(
    "--ids-in",
    metavar="FILE.pcap",
    help="Capture in which the request IDs still stand: true paths are made from it.",
)
@path_option(
    "--span-truth",
    metavar="FILE",
    help="True parents of a run made with `trace --spans` (CSV, also gzipped; docs/spans.md).",
)
@path_option(
    "--faults",
    metavar="FILE",
    help="Faults that were caused on purpose (faults.csv of a testbed run): are the findings right?",
)
@time_option("--window", default="50ms", help="Width of the windows.")
@click.option("--zone", metavar="NAME", help="Time zone of logs that name none, such as Europe/Berlin.")
@set_option(
    "--min-r",
    type=Number(0, 1),
    default=0.99,
    help="A tier agrees from this correlation of queue lengths on.",
)
@set_option(
    "--max-bias",
    metavar="PERCENT",
    type=Number(0),
    default=5.0,
    help="A tier agrees up to this bias, in percent of the mean queue length.",
)
@set_option(
    "--max-bias-calls",
    metavar="CALLS",
    type=Number(0),
    default=0.05,
    help="A bias of fewer calls is none: the tier is nearly idle.",
)
@set_option(
    "--min-windows",
    type=click.IntRange(2),
    default=20,
    help="With fewer windows to compare, nothing is decided.",
)
@set_option(
    "--min-paths",
    metavar="PERCENT",
    type=Number(0, 100),
    default=0.0,
    help="Least completeness and accuracy of whole paths, where the truth is known.",
)
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(["server", "caller", "senders", "wire", "calls", "between"]),
    help="Only this evidence counts (docs/validating.md); repeatable. All of it when not given.",
)
@path_option("--plot", metavar="FILE.html", help="Also write both queue lengths of every tier as a page.")
@JSON
def validate(
    run_path: Path,
    events: Path | None,
    threads: Path | None,
    truth: Path | None,
    ids_in: Path | None,
    span_truth: Path | None,
    faults: Path | None,
    window: int,
    zone: str | None,
    min_r: float,
    max_bias: float,
    max_bias_calls: float,
    min_windows: int,
    min_paths: float,
    by: tuple[str, ...],
    plot: Path | None,
    as_json: bool,
) -> int:
    """Compare queue lengths by the tap with those by the servers' event monitors, tier by tier; or
    the links of a span table with their truth; or findings with faults that were caused on purpose.

    Where the true paths are known, accuracy and completeness of the traces are shown too. The result is
    stored in the run, and the report shows it. Exit status 4: tap and logs disagree, or paths are worse than
    --min-paths; 3: too little to judge by.
    """
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json, print_table, progress_bar
    from tapscope.store.opening import refuse_over

    if plot is not None:
        refuse_over(run_path, plot)
    if [events, threads, span_truth, faults].count(None) != 3:
        raise click.UsageError(
            "Give --events DIR or --threads DIR; or, for a run made of span tables, --span-truth FILE; or "
            "--faults FILE."
        )
    if faults is not None:
        from tapscope.validate import fault_tables
        from tapscope.validate import faults as record

        scores = [record.validate(run_path, faults)]
        if as_json:
            print_json(fault_tables.as_json(scores))
        else:
            for table in fault_tables.tables(scores):
                print_table(*table)
        return ExitCode.DONE
    if span_truth is not None:
        from tapscope.validate import span_truth as spans
        from tapscope.validate import summary

        found = spans.validate(run_path, span_truth)
        if as_json:
            print_json(found.as_json())
        else:
            show.span_validation(summary.span_tables(found), found.paths.counters)
        if not found.calls:
            note("Too little to judge by: the truth names no call of this run.")
            return ExitCode.LOW_QUALITY
        return ExitCode.DONE
    logs = events or threads
    assert logs is not None
    if truth is not None and ids_in is not None:
        raise click.UsageError("Give --truth or --ids-in, not both.")
    from tapscope.validate import validation
    from tapscope.validate.verdict import AGREES, Thresholds

    limits = Thresholds(
        pearson_r=min_r,
        bias_percent=max_bias,
        bias_calls=max_bias_calls,
        windows=min_windows,
        paths_percent=min_paths,
        by=by or tuple(AGREES),
    )
    with progress_bar() as progress:
        result = validation.validate(
            run_path,
            logs,
            truth,
            by_threads=threads is not None,
            width_ns=window,
            zone=zone,
            ids_in=ids_in,
            thresholds=limits,
            progress=progress,
        )
    if as_json:
        print_json(result.as_json())
    else:
        show.validation(result.tables(), result.verdict, result.failures, result.undecided)
    if plot is not None:
        try:
            from tapscope.validate import plot as page
        except ModuleNotFoundError as error:
            raise TapscopeError(
                f"the plot needs the Python package {error.name}",
                remedy="Install it: pip install 'tapscope[report]'",
            ) from error
        note(f"Plot: {page.write(result, plot).resolve().as_uri()}")
    return result.exit_code
