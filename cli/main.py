"""Entry point of the `tapscope` command: the group of sub-commands, and what a failure looks like to the
user."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from tapscope import __version__
from tapscope.store.errors import ExitCode, TapscopeError

COMMANDS: dict[str, str] = {
    "trace": "tapscope.cli.commands.trace:trace",
    "stats": "tapscope.cli.commands.stats:stats",
    "report": "tapscope.cli.commands.report:report",
    "validate": "tapscope.cli.commands.validate:validate",
    "compare": "tapscope.cli.commands.compare:compare",
    "queues": "tapscope.cli.commands.queues:queues",
    "response-times": "tapscope.cli.commands.response_times:response_times",
    "listeners": "tapscope.cli.commands.listeners:listeners",
    "findings": "tapscope.cli.commands.findings:findings",
    "congestion": "tapscope.cli.commands.congestion:congestion",
    "traces": "tapscope.cli.commands.traces:traces",
    "export": "tapscope.cli.commands.export:export",
    "query": "tapscope.cli.commands.query:query",
    "warehouse": "tapscope.cli.commands.warehouse:warehouse",
    "load-hosts": "tapscope.cli.commands.load_hosts:load_hosts",
    "hosts": "tapscope.cli.commands.hosts:hosts",
    "capture": "tapscope.cli.commands.capture:capture",
    "threads": "tapscope.cli.commands.threads:threads",
    "testbed": "tapscope.cli.commands.testbed:testbed",
    "monitors": "tapscope.cli.commands.monitors:monitors",
    "completion": "tapscope.cli.commands.completion:completion",
}
"""Sub-commands in the order of the help page; each is imported when it is used."""

SHORT_HELP = {"testbed": "Run real servers behind a mirror port, with known truth."}
"""Of commands whose module is slow to import."""


class _ReaderGoneError(Exception):
    """Who reads our output (head, less) has seen enough."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called or described."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click would end the program with status 1
            raise _ReaderGoneError from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in COMMANDS:
            described = SHORT_HELP.get(name)
            if described is None:
                command = self.get_command(ctx, name)
                described = command.get_short_help_str(limit=90) if command else ""
            rows.append((name, described))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="tapscope")
def cli() -> None:
    """Traces, queue lengths and bottlenecks of a web system, rebuilt from a mirror port alone.

    \b
    tapscope trace run.pcap -o run.db      packets to traces and queue lengths
    tapscope report run.db -o run.html     one self-contained page

    Exit status: 0 done, 1 error, 2 wrong use, 3 done but the input's quality is below the threshold,
    4 validation failed, 130 interrupted.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status. Messages go to stderr, one per failure."""
    try:
        done: Any = cli.main(
            args=None if arguments is None else list(arguments), prog_name="tapscope", standalone_mode=False
        )
        sys.stdout.flush()
        return int(done) if isinstance(done, int) else ExitCode.DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted; what was stored before stays readable")
        return ExitCode.INTERRUPTED
    except TapscopeError as error:
        if _debug():
            raise
        _say(str(error))
        return error.exit_code
    except (_ReaderGoneError, BrokenPipeError):
        # Nothing more may be written, not even when Python flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except MemoryError:
        _say("not enough memory. Cut the capture into shorter ones and trace each of them.")
        return ExitCode.ERROR
    except OSError as error:
        if _debug():
            raise
        _say(_os_error(error))
        return ExitCode.ERROR
    except Exception as error:
        if _debug():
            raise
        _say(
            f"this is a bug in tapscope ({type(error).__name__}: {error}). "
            "Please report it with the output of the same command under TAPSCOPE_DEBUG=1."
        )
        return ExitCode.ERROR


def _os_error(error: OSError) -> str:
    path = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return (
            f"{path}the disk is full. Free some space and try again; what was stored before stays readable."
        )
    remedies = {
        errno.ENOENT: "Check the path.",
        errno.EACCES: "Check the owner and mode, or choose another file.",
        errno.EPERM: "This needs root or a capability (see `tapscope capture --help`).",
        errno.EROFS: "Choose a file on another file system.",
    }
    text = (error.strerror or str(error)).lower()
    return f"{path}{text}. {remedies.get(error.errno or 0, 'Check the path and the file system.')}"


def _say(text: str) -> None:
    print(f"tapscope: {text}", file=sys.stderr, flush=True)


def _debug() -> bool:
    return os.environ.get("TAPSCOPE_DEBUG", "") not in ("", "0")


def main() -> NoReturn:
    """The installed `tapscope` script."""
    _open_what_is_closed()
    sys.exit(run())


def _open_what_is_closed() -> None:
    """A daemon may start a program without standard streams: what is opened next would be taken for them."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  # until the end
