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
    import sys

    from tapscope.cli.output import print_json, print_table
    from tapscope.report.export import write_rows
    from tapscope.store.runfile import RunFile

    with RunFile.open(run_path) as run:
        names, rows = run.user_query(sql)
        if as_csv:
            write_rows(sys.stdout, names, rows, "csv")
        elif as_json:
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        else:
            print_table("", names, rows)
