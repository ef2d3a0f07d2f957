"""`tapscope listeners`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(short_help="What TCP says of each listener: SYNs sent again, RSTs, zero windows.")
@RUN
@click.option("--waits", "each", is_flag=True, help="Every connection whose SYN was sent again, instead.")
@click.option(
    "--events", "timed", is_flag=True, help="Every reset, closed window and segment sent again, instead."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@JSON
def listeners(run_path: Path, each: bool, timed: bool, as_csv: bool, as_json: bool) -> None:
    """Show which listeners refused connections or kept them waiting, and whom that hit.

    A full accept queue drops SYNs without a word: the client sends them again after 1, 3, 7 s, and its
    request comes that much later. Zero windows say that a receiver does not read, segments sent again that
    its side of the path loses packets. Most trouble comes first. --events lists them with
    their times, causes, and the transactions whose calls they touched.
    """
    import sys

    from tapscope.cli import listeners as listing
    from tapscope.cli.output import note, print_json
    from tapscope.cli.reading import opened
    from tapscope.report.export import write_rows

    with opened(run_path) as run:
        listed = (listing.events if timed else listing.waits if each else listing.records)(run)
        if listing.of_spans(run):
            note("This run was made of span tables: no tap saw its connections.")
        elif timed and not listed and not listing.has_events(run):
            note("This run was made by a tapscope that counted such events only: trace its capture again.")
    if as_csv:
        write_rows(sys.stdout, list(listed[0]) if listed else [], ([*one.values()] for one in listed), "csv")
    elif as_json:
        print_json(listed)
    elif timed:
        listing.show_events(listed)
    elif each:
        listing.show_waits(listed)
    else:
        listing.show(listed)
