"""`tapscope compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapscope.cli.options import JSON, Duration

if TYPE_CHECKING:
    from tapscope.validate.comparison import Comparison

BETWEEN = "\0"
"""Stands for the -- between A and B, which click would swallow; no path holds this character."""


class _TwoSides(click.Command):
    """A command whose -- separates two lists of runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [BETWEEN if word == "--" else word for word in args])


@click.command(cls=_TwoSides, short_help="What repeated runs of two kinds differ in, and how surely.")
@click.argument("runs", metavar="A... -- B...", nargs=-1, required=True)
@click.option(
    "--warmup",
    type=Duration(),
    default=0,
    metavar="TIME",
    help="Left out at the beginning of each run (beside what the testbed's manifest leaves out).",
)
@click.option(
    "--rampdown", type=Duration(), default=0, metavar="TIME", help="Left out at the end of each run."
)
@click.option(
    "--turns",
    is_flag=True,
    help="RUNS without --: compare the turns within each, off (A) and on (B), instead of runs.",
)
@JSON
def compare(runs: tuple[str, ...], warmup: int, rampdown: int, turns: bool, as_json: bool) -> None:
    """Compare repeated runs of two kinds, for example event monitors off (A) and on (B).

    Of run files the times are those of the tap. Of run directories of the testbed they are the load
    generator's own, for runs without a tap; the two are never mixed. Throughput, response times, CPU by mode
    and disk bytes of every host: means, difference with its 95 % interval, Hedges' g, and what a study of
    this size could have seen. Runs with equal seeds in A and B are pairs; else Welch's test is used. Runs
    that lost packets are named.
    """
    from tapscope.cli.output import progress_bar
    from tapscope.validate import comparison

    if turns:
        if BETWEEN in runs or warmup or rampdown:
            raise click.UsageError("With --turns, name runs without --, and neither --warmup nor --rampdown.")
        with progress_bar() as progress:
            found = comparison.compare_turns([Path(run) for run in runs], progress=progress)
        _show(found, as_json)
        return
    if runs.count(BETWEEN) != 1:
        raise click.UsageError("Name the runs of A, then --, then the runs of B.")
    at = runs.index(BETWEEN)
    with progress_bar() as progress:
        found = comparison.compare(
            [Path(run) for run in runs[:at]],
            [Path(run) for run in runs[at + 1 :]],
            lead_ns=warmup,
            tail_ns=rampdown,
            progress=progress,
        )
    _show(found, as_json)


def _show(found: Comparison, as_json: bool) -> None:
    from tapscope.cli import show
    from tapscope.cli.output import print_json

    if as_json:
        print_json(found.as_json())
        return
    show.comparison(found.differs, found.tables(), found.statement(), found.notes)
