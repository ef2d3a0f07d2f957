"""`tapscope testbed study`, `sweep` and `faults`: many runs, and what is made of them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tapscope.cli.commands.testbed_run import run, testbed
from tapscope.cli.options import JSON, Number, path_option, set_option
from tapscope.validate.testbed.faults import KINDS, split
from tapscope.validate.testbed.study import FACTORS


def _listed() -> str:
    """Help of `study`, with the table of factors (\\b: click leaves the paragraph as it is)."""
    width = max(map(len, FACTORS))
    lines = [f"  {name:{width}}  {factor.summary}" for name, factor in FACTORS.items()]
    head = ["Run interleaved pairs with something off and on, and compare them (needs root)."]
    tail = [
        "RUN OPTIONS are those of `tapscope testbed run`; with --no-mirror among them there is nothing to "
        "trace, and the load generator's times are compared. A study that was broken off goes on when it is "
        "given again; more pairs can be added. Leaves run directories, run files and comparison.json; what "
        "is printed is what `tapscope compare` prints for them.",
    ]
    return "\n".join([*head, "", "\b", "What a study can be about:", *lines, "", *tail])


RUN_OPTIONS = click.argument("words", metavar="[-- RUN OPTIONS]", nargs=-1, type=click.UNPROCESSED)
OUTPUT = path_option("-o", "--output", required=True, help="Folder for all of it.")
LOCK = path_option(
    "--lock",
    metavar="FILE",
    help="File that is held locked (flock) during each run, so that other measurements here wait.",
)


def _checked(words: tuple[str, ...]) -> None:
    """A mistake in the options of the runs is told before the first of them."""
    run.make_context("tapscope testbed run", [*words, "-o", "."])


@testbed.command(help=_listed())
@click.option(
    "--what",
    type=click.Choice(list(FACTORS)),
    required=True,
    metavar="NAME",
    help="What is off and on, see above.",
)
@set_option("--pairs", type=click.IntRange(1), default=5, help="Pairs of runs; with --turns, runs.")
@set_option(
    "--turns",
    type=click.FloatRange(0),
    default=0.0,
    help="Off and on in turns of so many seconds within each run (threads), instead of in pairs of runs.",
)
@set_option("--seed", type=int, default=1, help="Of the first pair's users, and of the order.")
@OUTPUT
@LOCK
@JSON
@RUN_OPTIONS
def study(
    what: str,
    pairs: int,
    turns: float,
    seed: int,
    output: Path,
    lock: Path | None,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """`_listed` has the help text."""
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json
    from tapscope.validate.testbed import study as studies

    _checked(words)
    found = studies.study(what, pairs, words, output, seed=seed, turns_s=turns, lock=lock, say=note)
    if as_json:
        print_json(found.as_json())
    else:
        show.comparison(found.differs, found.tables(), found.statement(), found.notes)


def _kinds(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    kinds = tuple(KINDS) if value is None else tuple(kind.strip() for kind in value.split(","))
    for kind in kinds:
        for part in kind.split("+"):
            split(part)
    return kinds


@testbed.command(short_help="Cause faults of every kind, and judge the findings by them.")
@click.option(
    "--kinds",
    callback=_kinds,
    metavar="KIND,...",
    help=f"Of {', '.join(KINDS)}, also KIND@HOST; all by default. KIND+KIND: in the same runs.",
)
@set_option("--repetitions", type=click.IntRange(1, 99), default=5, help="Runs of each kind.")
@set_option("--seed", type=int, default=1, help="Seeds of the runs are made from it.")
@set_option("--seconds", type=Number(5), default=30.0, help="Length of each run phase.")
@click.option("--judge-only", is_flag=True, help="Do no runs, judge those that are there.")
@OUTPUT
@LOCK
@JSON
def faults(
    kinds: tuple[str, ...],
    repetitions: int,
    seed: int,
    seconds: float,
    judge_only: bool,
    output: Path,
    lock: Path | None,
    as_json: bool,
) -> None:
    """Cause faults of every kind at random moments, and judge the findings by them (root).

    Every run is of the board with a hundred users, and takes about half a minute longer than its run phase.
    Runs that are in the folder already are not done again; findings are made anew each time.
    """
    from tapscope.cli.output import note, print_json, print_table
    from tapscope.validate import fault_tables
    from tapscope.validate.testbed.fault_campaign import FaultCampaign, conduct

    plan = FaultCampaign(output, kinds, repetitions, seed, seconds)
    scores = conduct(plan, judge_only=judge_only, lock=lock, say=note)
    if as_json:
        print_json(fault_tables.as_json(scores))
        return
    for table in fault_tables.tables(scores):
        print_table(*table)


class Numbers(click.ParamType):  # type: ignore[type-arg]  # older click has no argument here
    """Whole numbers from 1 with commas between them; list of int."""

    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isdigit() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is no list of numbers; write for example 20,100,300.", param, ctx)
        return [int(word) for word in words]


@testbed.command()
@click.option("--users", type=Numbers(), required=True, metavar="N,N,...", help="The workloads.")
@set_option("--seconds", type=Number(1), default=30.0, help="Length of each run phase.")
@set_option("--seed", type=int, default=1, help="Seed of all users' decisions.")
@OUTPUT
@path_option(
    "--page",
    help="Page whose measured part is replaced, or that is made [default: chapter.md in the folder].",
)
@click.option(
    "--study",
    "studies",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of a study whose results the page shows, too; repeatable. Those of the same thing are one "
    "table, by workload.",
)
@click.option("--again", is_flag=True, help="Trace and validate what was traced before, too.")
@LOCK
@RUN_OPTIONS
def sweep(
    users: list[int],
    seconds: float,
    seed: int,
    output: Path,
    page: Path | None,
    studies: tuple[Path, ...],
    again: bool,
    lock: Path | None,
    words: tuple[str, ...],
) -> None:
    """Run several workloads, validate each, and write the validation chapter (needs root).

    Each workload is run with event monitors, traced and validated. The chapter is a page in Markdown with
    figures (SVG) in a folder beside it: queue lengths by the tap and by the event monitors, their agreement
    by workload, paths, and what studies found out about costs. A sweep that was broken off goes on when it
    is given again; more workloads can be added. RUN OPTIONS are those of `tapscope testbed run`.
    """
    from tapscope.cli.output import note
    from tapscope.store.errors import TapscopeError
    from tapscope.validate.testbed import sweep as sweeps

    try:
        from tapscope.validate.testbed import chapter
    except ModuleNotFoundError as error:
        raise TapscopeError(
            f"the figures need the Python package {error.name}",
            remedy="Install it: pip install 'tapscope[figures]'",
        ) from error
    _checked(words)
    found = sweeps.sweep(users, seconds, words, output, seed=seed, again=again, lock=lock, say=note)
    page = page or output / "chapter.md"
    command = ["tapscope", "testbed", "sweep", "--users", ",".join(map(str, users))]
    command += ["--seconds", f"{seconds:g}", "--seed", str(seed), "-o", output.name]
    command += ["--", *words] if words else []
    note(f"Page: {chapter.write(found, studies, page, [shlex.join(command)]).resolve().as_uri()}")
