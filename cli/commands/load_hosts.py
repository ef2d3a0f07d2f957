"""`tapscope load-hosts`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, RUN


@click.command(name="load-hosts", short_help="Add host monitors' logs to a run.")
@RUN
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--host", metavar="NAME", help="Host of these files, when neither folder nor file tells.")
@click.option(
    "--zone", metavar="NAME", help="Time zone of logs that name none, such as Europe/Berlin or +0200."
)
@click.option(
    "--start",
    metavar="TIME",
    help="When the program was started whose log counts seconds since then (GC logs, perf): "
    "a date in ISO 8601, or seconds since 1970.",
)
@click.option(
    "--format",
    "formats",
    metavar="FILE.toml",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Declared format of other logs (see `tapscope hosts guess`); may be given several times.",
)
@JSON
def load_hosts(
    run_path: Path,
    paths: tuple[Path, ...],
    host: str | None,
    zone: str | None,
    start: str | None,
    formats: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Load logs of host monitors and of JVMs' garbage collectors into a run.

    PATH is a file or a folder; files may be compressed with gzip. Known are Collectl raw and plot files,
    sadf, sar, iostat, mpstat, pidstat, vmstat, perf stat, esxtop, GC logs of every JDK, and stamped copies of
    the kernel's pressure, control-group, lock_stat and cpufreq files (docs/hosts.md). --format reads others.

    Of a folder hosts/NAME/... the host is NAME; else the file's header says it. Loading a file again replaces
    what was loaded from it.
    """
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json
    from tapscope.hostmon.clock import told
    from tapscope.hostmon.declared import load_format
    from tapscope.hostmon.fit import misfits
    from tapscope.hostmon.load import load_host_files
    from tapscope.store.runfile import RunFile

    declared = [load_format(path) for path in formats]
    with RunFile.open(run_path, write=True) as run:
        loaded = load_host_files(run, list(paths), host, told(zone, start), declared)
        unfit = misfits(run)
    if as_json:
        print_json(loaded)
    else:
        show.loaded_hosts(loaded)
    for source in loaded:
        for warning in source["warnings"]:
            note(f"tapscope: {source['path']}: {warning}.")
    for one in unfit:
        note(f"tapscope: {one}")
