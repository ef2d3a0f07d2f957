"""`tapscope stats`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(short_help="What a run holds, and what was lost or not understood.")
@RUN
@JSON
def stats(run_path: Path, as_json: bool) -> None:
    """Show the inputs of a run, its nodes, what was lost per listener, and every counter by name."""
    from tapscope.cli import show
    from tapscope.cli.output import print_json
    from tapscope.cli.summary import statistics
    from tapscope.store.runfile import RunFile

    with RunFile.open(run_path) as run:
        record = statistics(run)
    if as_json:
        print_json(record)
    else:
        show.stats(record)
