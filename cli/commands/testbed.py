"""`tapscope testbed study` and `sweep`, beside the commands that the testbed brings itself."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON
from tapscope.validate.testbed.commands import run, testbed
from tapscope.validate.testbed.study import FACTORS


def _listed() -> str:
    """Help of `study`, with the table of factors (\\b: click leaves the paragraph as it is)."""
    width = max(map(len, FACTORS))
    lines = [f"  {name:{width}}  {factor.summary}" for name, factor in FACTORS.items()]
    head = ["Run interleaved pairs with something off and on, and compare them (needs root)."]
    tail = [
        "RUN OPTIONS are those of `tapscope testbed run`. A study that was broken off goes on when it is "
        "given again; more pairs can be added. Leaves run directories, run files and comparison.json; what "
        "is printed is what `tapscope compare` prints for them.",
    ]
    return "\n".join([*head, "", "\b", "What a study can be about:", *lines, "", *tail])


RUN_OPTIONS = click.argument("words", metavar="[-- RUN OPTIONS]", nargs=-1, type=click.UNPROCESSED)
OUTPUT = click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder for all of it."
)
LOCK = click.option(
    "--lock",
    metavar="FILE",
    type=click.Path(path_type=Path),
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
@click.option("--pairs", type=click.IntRange(1), default=5, show_default=True, help="Pairs of runs.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of the first pair's users, and of the order."
)
@OUTPUT
@LOCK
@JSON
@RUN_OPTIONS
def study(
    what: str, pairs: int, seed: int, output: Path, lock: Path | None, as_json: bool, words: tuple[str, ...]
) -> None:
    """`_listed` has the help text."""
    from tapscope.cli import show
    from tapscope.cli.output import note, print_json
    from tapscope.validate.testbed import study as studies

    _checked(words)
    found = studies.study(what, pairs, words, output, seed=seed, lock=lock, say=note)
    if as_json:
        print_json(found.as_json())
    else:
        show.comparison(found.differs, found.tables(), found.statement(), found.notes)
