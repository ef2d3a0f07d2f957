"""`tapscope traces`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(short_help="Transactions, or the call tree of one.")
@RUN
@click.option("--trace", "number", type=int, metavar="ID", help="Show the calls of this transaction.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list.")
@click.option(
    "--order",
    type=click.Choice(["slowest", "time", "unsure"]),
    default="slowest",
    show_default=True,
    help="Slowest first, in order of time, or least sure first.",
)
@click.option("--class", "contains", default="", metavar="TEXT", help="Only classes that contain this text.")
@JSON
def traces(run_path: Path, number: int | None, limit: int, order: str, contains: str, as_json: bool) -> None:
    """List transactions, or show one as a tree of calls with offsets, delays and the probability of each
    link."""
    from tapscope.cli import listings, show
    from tapscope.cli.output import print_json
    from tapscope.cli.reading import opened

    with opened(run_path) as run:
        if number is None:
            records, shown = (
                listings.trace_list(run, limit=limit, contains=contains, order=order),
                show.traces,
            )
        else:
            records, shown = listings.trace_tree(run, number), show.tree
    if as_json:
        print_json(records)
    else:
        shown(records)
