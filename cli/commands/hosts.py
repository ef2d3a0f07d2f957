"""`tapscope hosts`: formats of host logs, and the clocks of the hosts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN
from tapscope.store.errors import TapscopeError


@click.group(short_help="Formats of host logs, and the clocks of the hosts.")
def hosts() -> None:
    """Formats of host logs that `tapscope load-hosts` should read, and how the hosts' clocks run."""


@hosts.command(short_help="Propose a format for a log that nothing knows.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--name", metavar="NAME", help="Name of the format and its tables; the file's name by default.")
@JSON
def guess(file: Path, name: str | None, as_json: bool) -> None:
    """Print a format (TOML) that reads FILE, proposed from its first 2000 lines.

    Read and correct it, then give it to `tapscope load-hosts --format`. What it makes of the lines is said on
    standard error. A file that a reader knows already needs no format.
    """
    from tapscope.cli.output import note, print_json
    from tapscope.hostmon.guess import guess_format
    from tapscope.hostmon.guess_parts import MOST_LINES
    from tapscope.hostmon.load import first_lines
    from tapscope.store.dynamic import folded

    year = datetime.fromtimestamp(file.stat().st_mtime, UTC).year
    plain = name or folded(file.name.removesuffix(".gz").partition(".")[0])
    try:
        proposed = guess_format(first_lines(file, MOST_LINES), plain, year)
    except TapscopeError as error:
        error.path = error.path or str(file)  # lines do not know where they stand
        raise
    if as_json:
        print_json(vars(proposed))
        return
    if proposed.known_as:
        note(f"tapscope: {file}: known as {proposed.known_as}; load it without a format.")
        return
    print(proposed.toml, end="")
    note(
        f"tapscope: {file}: {proposed.lines} lines gave {proposed.rows} rows, {proposed.unmatched} were not "
        f"understood; tables: {', '.join(f'{kind} ({rows})' for kind, rows in proposed.kinds.items())}."
    )


@hosts.command(name="try", short_help="Show what would be loaded from a log.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--format",
    "formats",
    metavar="FILE.toml",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Declared format.",
)
@click.option("--zone", metavar="NAME", help="Time zone of a log that names none.")
@click.option(
    "--start", metavar="TIME", help="When the program was started whose log counts seconds since then."
)
@JSON
def try_(file: Path, formats: tuple[Path, ...], zone: str | None, start: str | None, as_json: bool) -> None:
    """Read FILE as `tapscope load-hosts` would, and show its tables, columns and what was counted."""
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json
    from tapscope.hostmon.clock import told
    from tapscope.hostmon.declared import load_format
    from tapscope.hostmon.load import described, read_host_log

    log = described(read_host_log(file, told(zone, start), [load_format(path) for path in formats]))
    if as_json:
        print_json(log)
        return
    show.host_log(log)
    for warning in log["warnings"]:
        note(f"tapscope: {file}: {warning}.")


@hosts.command(short_help="How far each host's clock is from the tap's.")
@RUN
@click.option("--measure", is_flag=True, help="Measure again, and store what was found.")
@click.option("--forget", is_flag=True, help="Take every time as it was logged from now on.")
@JSON
def clocks(run_path: Path, measure: bool, forget: bool, as_json: bool) -> None:
    """Show offset and drift of the clocks of the hosts whose logs are in a run, with their errors (95 %).

    They are measured when host logs are loaded: a host's counters of network bytes, or of connections opened,
    grow as the tap saw it, shifted by the offset. Where an offset is larger than its error, it is taken off
    whenever the host's logs are read; the logged times stay as they were. `--raw-clocks` of other commands
    leaves it on, `--forget` removes what was measured.
    """
    from tapscope.cli import show
    from tapscope.cli.output import print_json
    from tapscope.hostmon.clock_layer import forget_clocks, measure_clocks, read_clocks
    from tapscope.hostmon.fuse import host_addresses
    from tapscope.store.runfile import RunFile

    if measure and forget:
        raise click.UsageError("--measure and --forget contradict each other.")
    with RunFile.open(run_path, write=measure or forget) as run:
        if forget:
            forget_clocks(run)
        if measure:
            measure_clocks(run, host_addresses(run))
        listed = [vars(one) for one in read_clocks(run)]
    if as_json:
        print_json(listed)
    elif listed:
        show.clocks(listed)
    else:
        print("No clock was measured: all times are taken as they were logged.")
