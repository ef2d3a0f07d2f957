"""`tapscope threads`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tapscope.cli.options import JSON, path_option
from tapscope.store.errors import ExitCode


@click.group()
def threads() -> None:
    """Record which thread sends and receives on which TCP connection, and use it as exact truth."""


LOGS = click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))


@threads.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the logs, one per process.",
)
@click.option("--print-env", is_flag=True, help="Print the variables for a service's unit file instead.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def record(folder: Path, print_env: bool, command: tuple[str, ...]) -> int:
    """Run COMMAND and record the threads of it and of all processes that it starts (Linux, glibc).

    \b
    tapscope threads record -o logs -- apachectl -D FOREGROUND
    tapscope threads record -o logs --print-env >> /etc/default/tomcat10

    Only who, where, when and how many bytes is noted, never what. Servers that use io_uring or make system
    calls without libc are not seen; their logs say how many bytes went by unseen.
    """
    from tapscope.validate.threads import record as recorder

    if print_env == bool(command):
        raise click.UsageError("Give either a COMMAND behind `--`, or --print-env.")
    if print_env:
        variables = recorder.environment(recorder.folder_for_logs(folder), {})
        for name, value in variables.items():
            click.echo(f"{name}={shlex.quote(value)}")
        return ExitCode.DONE
    recorder.execute(folder, command)
    return ExitCode.DONE


RECORDING = click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True)
)


@threads.command()
@RECORDING
def pause(folder: Path) -> None:
    """Pause the recording into DIR, without a restart of what is recorded.

    Within 0.2 s all processes leave out their sends and receives; connections that come and go are noted
    still. Calls on the wire meanwhile have no parent by threads.
    """
    from tapscope.validate.threads import record as recorder

    recorder.pause(folder)


@threads.command()
@RECORDING
def resume(folder: Path) -> None:
    """Go on with a recording into DIR that was paused."""
    from tapscope.validate.threads import record as recorder

    recorder.resume(folder)


@threads.command()
@LOGS
@path_option("-o", "--output", metavar="CALLS.csv", help="Also write one row per call, with its parent.")
@path_option(
    "--answers",
    metavar="requests.csv",
    help="Compare with the paths that vApp's answers told (users/requests.csv of a testbed run).",
)
@JSON
def paths(logs: tuple[Path, ...], output: Path | None, answers: Path | None, as_json: bool) -> int:
    """Calls and their parents from thread LOGS (files or folders) alone, without a capture.

    Exit status 3: a process was refused, because its threads go back and forth between requests.
    """
    from dataclasses import asdict

    from tapscope.cli.output import print_json
    from tapscope.reconstruct.threads import log
    from tapscope.validate.threads import answers as told
    from tapscope.validate.threads import logged

    found = logged.paths(log.read(logs))
    if output is not None:
        logged.write(found, output)
    record = found.as_json()
    if answers is not None:
        record["answers"] = asdict(told.judge(found, answers))
    if as_json:
        print_json(record)
    else:
        for name, value in {**found.summary, **record.get("answers", {})}.items():
            click.echo(f"{name:44} {value}")
        for sentence in found.refused:
            click.echo(f"tapscope: {sentence}.", err=True)
    return ExitCode.LOW_QUALITY if found.refused else ExitCode.DONE


@threads.command()
@click.argument("run_path", metavar="RUN.db", type=click.Path(path_type=Path))
@LOGS
@path_option(
    "-o",
    "--output",
    metavar="CALLS.csv.gz",
    required=True,
    help="Truth file to write, as `tapscope validate --truth` reads it.",
)
@JSON
def truth(run_path: Path, logs: tuple[Path, ...], output: Path, as_json: bool) -> int:
    """A truth file for a run from thread LOGS: which transaction every call of the capture belongs to.

    Exit status 3: a process was refused, and calls have no transaction for it.
    """
    from dataclasses import asdict

    from tapscope.cli.output import print_json
    from tapscope.reconstruct.threads import log
    from tapscope.validate.threads import truth as thread_truth

    found = thread_truth.write(run_path, log.read(logs), output)
    if as_json:
        print_json(asdict(found))
    else:
        click.echo(f"{found.placed} of {found.calls} calls in {found.transactions} transactions")
        for name, value in sorted(found.counters.items()):
            if value:
                click.echo(f"{name:44} {value}")
        for sentence in found.refused:
            click.echo(f"tapscope: {sentence}.", err=True)
    return ExitCode.LOW_QUALITY if found.refused else ExitCode.DONE
