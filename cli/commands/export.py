"""`tapscope export`."""

from __future__ import annotations

import click

from tapscope.cli.options import RUN

TABLES = ["links", "calls", "messages", "traces", "loads", "span_links"]


@click.command(short_help="A table as CSV or JSON lines.")
@RUN
@click.option("--table", type=click.Choice(TABLES), required=True, help="What to export.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "jsonl"]),
    default="csv",
    show_default=True,
    help="CSV with a header line, or one JSON object per line.",
)
@click.option(
    "-o", "--output", metavar="FILE", default="-", show_default=True, help="File to write; - is stdout."
)
def export(run_path: str, table: str, format_: str, output: str) -> None:
    """Export a table of a run. The columns are described in docs/formats.md."""
    from tapscope.cli.output import note
    from tapscope.cli.reading import opened
    from tapscope.report.export import export as write

    with opened(run_path) as run:
        rows = write(run, table, format_, output)
    if output != "-":
        note(f"{rows} rows in {output}")
