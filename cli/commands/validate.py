"""`tapscope validate`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN, Duration
from tapscope.store.errors import TapscopeError


@click.command(short_help="Compare a run with the servers' own logs.")
@RUN
@click.option(
    "--events",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder with the logs of Apache, Tomcat and MariaDB.",
)
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="True paths (calls.csv[.gz]); looked for in ../truth/ of the logs when not given.",
)
@click.option("--window", type=Duration(), default="50ms", show_default=True, help="Width of the windows.")
@click.option("--zone", metavar="NAME", help="Time zone of logs that name none, such as Europe/Berlin.")
@click.option(
    "--plot",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Also write both queue lengths of every tier as a page.",
)
@JSON
def validate(
    run_path: Path,
    events: Path,
    truth: Path | None,
    window: int,
    zone: str | None,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Compare queue lengths by the tap with those by the servers' event monitors, tier by tier.

    Where the true paths are known, accuracy and completeness of the traces are shown too. The result is
    stored in the run, and the report shows it. Exit status 4: tap and logs disagree; 3: too little to judge
    by.
    """
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json, progress_bar
    from tapscope.validate import validation

    with progress_bar() as progress:
        result = validation.validate(run_path, events, truth, width_ns=window, zone=zone, progress=progress)
    if as_json:
        print_json(result.as_json())
    else:
        show.validation(result.tables(), result.verdict, result.failures, result.undecided)
    if plot is not None:
        try:
            from tapscope.validate import plot as page
        except ModuleNotFoundError as error:
            raise TapscopeError(
                f"the plot needs the Python package {error.name}",
                remedy="Install it: pip install 'tapscope[report]'",
            ) from error
        note(f"Plot: {page.write(result, plot).resolve().as_uri()}")
    return result.exit_code
