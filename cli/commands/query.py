"""`tapscope query`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(short_help="Ask a run with SQL (read only).")
@RUN
@click.argument("sql", metavar="SQL")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@JSON
def query(run_path: Path, sql: str, as_csv: bool, as_json: bool) -> None:
    """Run an SQL query on a run file and print the rows. Nothing can be changed by it.

    Tables and views are described in docs/formats.md. Example:

    \b
    tapscope query run.db "SELECT class, count(*) FROM v_call GROUP BY class ORDER BY 2 DESC"
    """
    from tapscope.cli.output import print_rows
    from tapscope.cli.reading import opened

    with opened(run_path) as run:
        names, rows = run.user_query(sql)
        print_rows(names, rows, as_csv=as_csv, as_json=as_json)
