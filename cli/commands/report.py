"""`tapscope report`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import RAW_CLOCKS, RUN


@click.command(short_help="One self-contained HTML page of a run.")
@RUN
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    required=True,
    type=click.Path(path_type=Path),
    help="Page to write; - is stdout.",
)
@RAW_CLOCKS
def report(run_path: Path, output: Path, raw_clocks: bool) -> None:
    """Write the report of a run: queue lengths, throughput, response times, hosts, the slowest transactions.

    The page needs no network. Needs plotly (pip install 'tapscope[report]').
    """
    from tapscope.cli.output import note
    from tapscope.store.errors import TapscopeError

    if output.exists() and not output.is_file():  # a device must never be replaced
        raise TapscopeError("this is not a regular file", path=output, remedy="Name a page to write.")

    try:
        from tapscope.report import html
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("plotly"):
            raise
        raise TapscopeError(
            "the report needs plotly, which is not installed", remedy="pip install 'tapscope[report]'"
        ) from error
    html.write(run_path, output, raw_clocks=raw_clocks)
    if str(output) != "-":
        note(f"Report: {output.resolve().as_uri()}")
