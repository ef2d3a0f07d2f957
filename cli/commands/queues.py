"""`tapscope queues`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(short_help="Queue length, throughput and response time per node.")
@RUN
@click.option("--node", metavar="NAME", help="Only this node (implies --series).")
@click.option("--series", is_flag=True, help="Every window instead of one line per node.")
@click.option("--from", "first_ns", type=int, metavar="NS", help="Only windows from this time on (ns UTC).")
@click.option("--to", "last_ns", type=int, metavar="NS", help="Only windows before this time (ns UTC).")
@JSON
def queues(
    run_path: Path, node: str | None, series: bool, first_ns: int | None, last_ns: int | None, as_json: bool
) -> None:
    """Show how long the queues were: per node over the run, or window by window.

    Queue length (load) is the time-weighted mean number of calls inside a node; max is the highest number at
    any moment of a window.
    """
    from tapscope.cli import listings, show
    from tapscope.cli.output import print_json
    from tapscope.cli.reading import opened

    with opened(run_path) as run:
        if series or node is not None or first_ns is not None or last_ns is not None:
            records, shown = listings.queue_series(run, node, first_ns, last_ns), show.series
        else:
            records, shown = listings.queue_summary(run), show.queues
    if as_json:
        print_json(records)
    else:
        shown(records)
