"""`tapscope response-times`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN, time_option


@click.command(
    "response-times", short_help="Distribution of response times: percentiles, modes, very long ones."
)
@RUN
@click.option(
    "--pit", "by_window", is_flag=True, help="Point-in-time response time, window by window, instead."
)
@time_option("--window", "width_ns", default="50ms", help="With --pit: length of the windows.")
@click.option("--node", metavar="NAME", help="With --pit: this node instead of those that clients call.")
@click.option("--by-start", is_flag=True, help="With --pit: calls that begin, not end, in the window.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many classes the table shows; JSON and CSV have all.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@JSON
def response_times(
    run_path: Path,
    by_window: bool,
    width_ns: int,
    node: str | None,
    by_start: bool,
    limit: int,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show how long calls took at each node, and transactions of each class.

    Percentiles count every call (values to three digits, as HdrHistogram does). Modes are humps of the
    distribution on a logarithmic scale; one that lies 1, 3 or 7 s behind the main one is named, as that is
    when clients send a SYN again. VLRT: response times of ten times the mean and 100 ms at least.
    """
    import sys

    from tapscope.cli import response_times as listing
    from tapscope.cli.output import print_json
    from tapscope.cli.reading import opened
    from tapscope.report.export import write_rows

    if not by_window and (node is not None or by_start):
        raise click.UsageError("--node and --by-start need --pit.")
    with opened(run_path) as run:
        if by_window:
            windows = listing.point_in_time(run, width_ns, node, by_start=by_start)
            if as_csv:
                names = ["node", "window_start_ns", "calls", "mean_ms", "max_ms"]
                write_rows(sys.stdout, names, ([one[name] for name in names] for one in windows), "csv")
            elif as_json:
                print_json(windows)
            else:
                listing.show_windows(windows, by_start=by_start)
            return
        found = listing.document(run)
    if as_csv:
        write_rows(sys.stdout, *listing.rows(found), "csv")
    elif as_json:
        print_json(found)
    else:
        listing.show(found, limit)
