"""`tapscope warehouse`: many runs in one file."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON

FILE = click.option(
    "-w",
    "--warehouse",
    "path",
    metavar="FILE",
    default="warehouse.duckdb",
    show_default=True,
    envvar="TAPSCOPE_WAREHOUSE",
    type=click.Path(path_type=Path),
    help="The warehouse; the environment variable TAPSCOPE_WAREHOUSE names it, too.",
)


@click.group(short_help="Many runs in one file, asked with SQL.")
def warehouse() -> None:
    """One DuckDB file with what hundreds of runs hold: nodes, load series, transactions, host samples.

    Every table spans all runs (docs/warehouse.md). Needs duckdb: pip install 'tapscope[warehouse]'.
    """


@warehouse.command(short_help="Add runs; those inside already are left alone.")
@FILE
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", default="", help="Name of the run, when it is a single one.")
@click.option("--calls", is_flag=True, help="Also copy every call: many times as large.")
@click.option("--findings", "with_findings", is_flag=True, help="Also find and store each run's findings.")
@JSON
def add(
    path: Path, paths: tuple[Path, ...], name: str, calls: bool, with_findings: bool, as_json: bool
) -> int:
    """Add run files, or all run files (*.db) below folders.

    A run is named after its file, or after its folder where the file is called run.db. A run that is inside
    already is left alone, one that changed is replaced. Each run is added whole or not at all: after Ctrl-C,
    the same command goes on where it was. Runs that cannot be read are named at the end; the exit status is
    then 1.
    """
    from tapscope.cli.output import note, print_json, progress_bar
    from tapscope.report.warehouse.add import add_runs, run_files
    from tapscope.report.warehouse.file import Warehouse
    from tapscope.store.errors import ExitCode

    files = run_files(paths)
    if name and len(files) > 1:
        raise click.UsageError(f"--name is for a single run; there are {len(files)}.")
    find = None
    if with_findings:
        from tapscope.cli.findings import records

        find = records
    done = []
    with Warehouse.open(path, write=True) as opened, progress_bar() as progress:
        for one in add_runs(opened, files, name=name, calls=calls, findings=find):
            done.append(one)
            if progress:
                progress("adding runs", len(done), len(files))
    failed = [one for one in done if one.what == "failed"]
    for one in failed:
        note(f"tapscope: {one.reason}")
    if as_json:
        print_json([one._asdict() for one in done])
    else:
        what = ", ".join(
            f"{sum(one.what == kind for one in done)} {kind}"
            for kind in ("added", "replaced", "unchanged", "failed")
        )
        print(f"{path}: {what}")
    return ExitCode.ERROR if failed else ExitCode.DONE


@warehouse.command(name="list", short_help="The runs inside.")
@FILE
@JSON
def list_(path: Path, as_json: bool) -> None:
    """List the runs of a warehouse: name, time, calls, transactions, and where they came from."""
    from tapscope.cli.output import print_json, print_table, utc
    from tapscope.report.warehouse.file import Warehouse

    with Warehouse.open(path) as opened:
        listed = opened.experiments()
    if as_json:
        print_json(listed)
        return
    rows = [
        (
            one["name"],
            utc(one["begin_ns"]),
            (one["end_ns"] - one["begin_ns"]) / 1e9,
            one["calls"],
            one["traces"],
            bool(one["complete"]),
            one["path"],
        )
        for one in listed
    ]
    print_table("Runs", ("name", "begin (UTC)", "seconds", "calls", "traces", "complete", "file"), rows)


@warehouse.command(short_help="Take runs out.")
@FILE
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def remove(path: Path, names: tuple[str, ...]) -> None:
    """Take runs out of a warehouse, by name. Their run files are not touched."""
    from tapscope.report.warehouse.file import Warehouse

    Warehouse.open(path).close()  # a warehouse that does not exist is not made here
    with Warehouse.open(path, write=True) as opened:
        for name in names:
            opened.remove(name)


@warehouse.command(short_help="Ask all runs with SQL (read only).")
@FILE
@click.argument("sql", metavar="SQL")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@JSON
def query(path: Path, sql: str, as_csv: bool, as_json: bool) -> None:
    """Run an SQL query (DuckDB's) over all runs. It can change nothing and reads no other file.

    \b
    tapscope warehouse query "SELECT experiment, node, max(load) FROM load GROUP BY ALL ORDER BY 3 DESC"
    tapscope warehouse query "SELECT experiment, host, max(busy_pct) FROM samples.cgroup_cpu GROUP BY ALL"
    """
    from tapscope.cli.output import print_rows
    from tapscope.report.warehouse.file import Warehouse

    with Warehouse.open(path) as opened:
        names, rows = opened.user_query(sql)
    print_rows(names, rows, as_csv=as_csv, as_json=as_json)
