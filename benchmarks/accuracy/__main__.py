"""How right the matcher is, and how right it says it is, on every set with known truth.

    make accuracy ACCURACY_ARGS="--runs RUNS --spans-dir TRACES -o accuracy.md"

Without options: simulated systems only, which need nothing else. --record DIR runs the recordings of
scenarios.py on the testbed first (as root; what is there already is kept). --runs takes run directories of
the testbed, or folders of them. --spans-dir takes a folder with public span sets (NAME.spans.csv.gz and
NAME.truth.csv.gz, docs/spans.md). Prints Markdown; Ctrl-C ends it with what is measured.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "capture"))

from trace_capture import machine

from accuracy import table
from accuracy.scenarios import FLOORS, MODES, RECORDINGS, SPAN_SETS, SUPERPOSED
from accuracy.sets import (
    EXPECTED_WRONG,
    KnownSet,
    Measured,
    RunSet,
    SpanSet,
    TableSet,
    run_directories,
    scenario_of,
)
from tapscope.reconstruct import spans
from tapscope.validate import span_truth


def simulated(users: int, seconds: float) -> TableSet:
    """A simulated three-tier system (tests/simulator.py)."""
    from simulator import NODE_NAMES, simulate

    world = simulate(seed=9021, users=users, seconds=seconds)
    return TableSet(
        f"simulated, {users} users",
        world.tables["calls"],
        world.tables["evidence"],
        world.true_parent,
        list(NODE_NAMES),
    )


def simulated_spans(users: int, seconds: float, times: int) -> SpanSet:
    """The same as a span table with clocks that are apart, laid over itself."""
    import tempfile

    import span_sets
    from simulator import simulate

    world = simulate(seed=9022, users=users, seconds=seconds)
    with tempfile.TemporaryDirectory() as folder:
        table_file = span_sets.write(Path(folder) / "spans.csv", span_sets.rows(world))
        truth_file = span_sets.write(Path(folder) / "truth.csv", span_sets.truth(world))
        return SpanSet("simulated spans", spans.read([table_file]), span_truth.read(truth_file), times)


def known_sets(options: argparse.Namespace) -> Iterator[KnownSet]:
    """Everything that is to be measured, made one by one."""
    for path in run_directories(options.runs):
        yield RunSet(path, group_of(path), options.join)
    if options.spans_dir is not None:
        for name in SPAN_SETS:
            table_file = options.spans_dir / f"{name}.spans.csv.gz"
            if not table_file.exists():
                print(f"not there, left out: {table_file}", file=sys.stderr)
                continue
            truth = span_truth.read(options.spans_dir / f"{name}.truth.csv.gz")
            for times in SUPERPOSED[name.partition("_")[0]]:
                yield SpanSet(name, spans.read([table_file]), truth, times)
    for users in sorted({floor.users for floor in FLOORS}):
        yield simulated(users, 4.0 if options.short else 10.0)
    for times in (1, 4):
        yield simulated_spans(10, 6.0 if options.short else 20.0, times)


def group_of(path: Path) -> str:
    """Group of a run directory: that of the recording of its name, else of the first one of its scenario."""
    named = [each.group for each in RECORDINGS if each.name == path.name]
    scenario = scenario_of(path)
    like = [each.group for each in RECORDINGS if f"--scenario {scenario} " in f"{each.options} "]
    return [*named, *like, scenario][0]


def record(folder: Path) -> None:
    """Run the testbed for every recording that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for recording in RECORDINGS:
        out = folder / recording.name
        if out.exists():
            continue
        words = shlex.split(recording.options)
        if "--seconds" not in words:
            words += ["--seconds", "20"]
        print(f"recording {recording.name}: {' '.join(words)}", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "tapscope", "testbed", "run", *words, "-o", str(out)], check=True
        )


def page(measured: Sequence[Measured]) -> str:
    """The whole result."""
    parts = [f"Machine: {machine()}.", "", table.markdown(table.HEAD, table.accuracy_rows(measured)), ""]
    parts += [*table.calibration_lines(measured), ""]
    parts += ["Claimed by the probabilities, expected by the self-check (both without truth), and right:", ""]
    parts += [table.markdown(table.EXPECTATION_HEAD, table.expectation_rows(measured)), ""]
    if refused := table.refusal_rows(measured):
        parts += [
            f"With --max-wrong-joins {100 * EXPECTED_WRONG:g}%, where it refuses or more are wrong:",
            "",
        ]
        parts += [table.markdown(table.REFUSAL_HEAD, refused), ""]
    baselines = table.baseline_rows(measured)
    if baselines:
        parts += ["Edges % / paths % (span sets: end to end %) of other ways to match, times only:", ""]
        parts += [table.markdown(table.baseline_head(), baselines), ""]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make accuracy", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--runs", type=Path, nargs="*", default=[], help="run directories, or folders of them"
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="record the testbed's sets here first")
    parser.add_argument("--spans-dir", type=Path, metavar="DIR", help="folder of public span sets")
    parser.add_argument("--evidence", nargs="*", choices=MODES, default=list(MODES))
    parser.add_argument(
        "--join",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="read recordings (plain pcap) from there on only, as a tap that is attached late",
    )
    parser.add_argument("--no-baselines", action="store_true", help="tapscope only")
    parser.add_argument("--short", action="store_true", help="short simulations, no baselines")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.md", help="write here, too")
    options = parser.parse_args(arguments)
    if options.record is not None:
        record(options.record)
        options.runs.append(options.record)
    measured: list[Measured] = []
    try:
        for known in known_sets(options):
            for row in known.measure(options.evidence, not (options.no_baselines or options.short)):
                print(" | ".join(table.accuracy_rows([row])[0]), file=sys.stderr, flush=True)
                measured.append(row)
    except KeyboardInterrupt:
        print("interrupted: what is measured is printed", file=sys.stderr)
    text = page(measured)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
