"""`tapscope testbed run` and `clean`; what makes many runs is in commands.testbed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tapscope.cli.options import Number, choice_option, path_option, set_option
from tapscope.validate.monitors.install import mariadb
from tapscope.validate.testbed import faults, leftovers, packages
from tapscope.validate.testbed import run as runner
from tapscope.validate.testbed.faults import KINDS
from tapscope.validate.testbed.options import (
    CODINGS,
    CONNECTORS,
    MIXES,
    MONITORS,
    PHP_CONNECTIONS,
    POOL_HABITS,
    STATEMENTS,
)
from tapscope.validate.testbed.scenarios import SCENARIOS


@click.group()
def testbed() -> None:
    """Real servers in network namespaces behind a mirror port, with ground truth."""


def _quotas(values: tuple[str, ...]) -> dict[str, float]:
    quotas = {}
    for value in values:
        host, _, cpus = value.partition("=")
        try:
            quotas[host] = float(cpus)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not HOST=CPUS") from None
    return quotas


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"testbed: {text}", err=True)


def _listed() -> str:
    """Help of `run`, with the table of scenarios (\\b: click leaves the paragraph as it is)."""
    width = max(map(len, SCENARIOS))
    lines = [f"  {name:{width}}  {scenario.summary}" for name, scenario in SCENARIOS.items()]
    head = ["Run the testbed once and leave a run directory (needs root).", "", "\b", "Scenarios:"]
    tail = ["", "A scenario has defaults of its own for some options; what is given goes first."]
    return "\n".join([*head, *lines, *tail])


@testbed.command(help=_listed())
@set_option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    default="board",
    metavar="NAME",
    help="What is built and run, see above.",
)
@set_option("--users", type=click.IntRange(1), default=50, help="Emulated users.")
@set_option("--seconds", type=Number(1), default=30.0, help="Length of the run phase.")
@set_option("--seed", type=int, default=1, help="Seed of all users' decisions.")
@path_option("-o", "--output", required=True, help="New run directory.")
@set_option("--think", "think_s", type=Number(0), default=3.0, help="Mean think time (s), exponential.")
@set_option(
    "--in-flight",
    type=click.IntRange(0),
    default=0,
    help="Requests of users at a time, at most: further ones wait for their turn; 0: no limit.",
)
@choice_option(
    "--mix",
    MIXES,
    default="write10",
    help="browse: reads only. write10: one interaction in ten writes.",
)
@set_option("--warmup", "warmup_s", type=Number(0), default=8.0, help="Seconds.")
@set_option("--rampdown", "rampdown_s", type=Number(0), default=2.0, help="Seconds.")
@choice_option("--connector", CONNECTORS, default="mod_jk", help="How Apache talks to Tomcat.")
@set_option("--jk-ping/--no-jk-ping", default=False, help="CPING before each AJP request.")
@set_option("--ajp-secret/--no-ajp-secret", default=True)
@set_option("--apache-threads", type=click.IntRange(2), default=150)
@set_option("--tomcat-threads", type=click.IntRange(1), default=60)
@set_option("--pool-size", type=click.IntRange(1), default=30, help="Database connections.")
@choice_option(
    "--pool-habit",
    POOL_HABITS,
    default="request",
    help="A connection is held per request or per group of statements.",
)
@choice_option(
    "--statements",
    STATEMENTS,
    default="mixed",
    help="mixed: half as text, half prepared. prepared: all, once per connection.",
)
@choice_option(
    "--avatica-coding",
    CODINGS,
    default="protobuf",
    help="How calls to Avatica are written.",
)
@set_option(
    "--keep-alive/--no-keep-alive",
    default=True,
    help="One HTTP connection per user, or one per request.",
)
@set_option(
    "--burst",
    "burst_s",
    type=Number(0),
    default=0.0,
    help="Half of the users ask at multiples of this many seconds, all at once; 0: they do not.",
)
@set_option("--backlog", type=click.IntRange(1), default=511, help="Accept queue of Apache httpd.")
@set_option("--heap", "heap_mib", type=click.IntRange(64), default=512, help="Tomcat's heap, MiB.")
@click.option("--serial-gc", is_flag=True, help="Tomcat collects with one thread, all others stopped.")
@set_option(
    "--collect-every",
    "collect_every_s",
    type=Number(0),
    default=0.0,
    help="Mean seconds between two full collections in Tomcat; 0: none are forced.",
)
@set_option(
    "--ballast",
    "ballast_mib",
    type=click.IntRange(0),
    default=0,
    help="Live small objects in Tomcat, MiB: the more, the longer a full collection.",
)
@click.option(
    "--fault",
    multiple=True,
    metavar="KIND[@HOST]",
    help=f"Cause faults of this kind at random moments; repeatable. Kinds: {', '.join(KINDS)}.",
)
@set_option(
    "--fault-every",
    "fault_every_s",
    type=Number(0.1),
    default=4.0,
    help="Mean seconds between two faults; half of them at least.",
)
@click.option(
    "--fault-ms",
    nargs=2,
    type=click.IntRange(1, 5000),
    metavar="MIN MAX",
    help="Length of a fault; each kind has bounds of its own.",
)
@set_option(
    "--buffer-pool",
    "buffer_pool_mib",
    type=click.IntRange(5),
    default=128,
    help="MariaDB's buffer pool, MiB.",
)
@set_option(
    "--work",
    type=click.IntRange(0),
    default=3,
    help="CPU work per page: passes of the text formatter (about 10 us each per page).",
)
@set_option("--php-workers", type=click.IntRange(1), default=40, help="WordPress: PHP-FPM's workers.")
@choice_option(
    "--php-connections",
    PHP_CONNECTIONS,
    default="request",
    help="WordPress: a database connection per request, or one that each worker keeps.",
)
@set_option(
    "--people-threads",
    type=click.IntRange(1),
    default=40,
    help="Fan-out and shop: threads of the Python service.",
)
@click.option("--cpu-quota", multiple=True, metavar="HOST=CPUS", help="For example app=0.5; repeatable.")
@choice_option(
    "--database-log",
    mariadb.LOGS,
    default="slow_log",
    help="MariaDB's event monitor: its slow log as a table, or performance_schema's statements.",
)
@choice_option(
    "--monitors",
    MONITORS,
    default="all",
    help="off: no request ids, logs or truth. logs: the servers' own. all: our agents' too, and ids in SQL.",
)
@set_option(
    "--truth/--no-truth",
    default=True,
    help="Without: no truth/calls.csv.gz, and the board does nothing for it (ids in prepared statements, a "
    "log of checkouts): for what the event monitors alone cost.",
)
@set_option(
    "--mirror/--no-mirror",
    default=True,
    help="Without the mirror there is no capture and no truth: what the tap itself costs the servers.",
)
@click.option("--midstream", is_flag=True, help="Begin the capture when the servers are connected already.")
@click.option(
    "--record-threads", is_flag=True, help="Record the servers' threads: logs in threads/ (docs/threads.md)."
)
@set_option(
    "--thread-turns",
    "thread_turns_s",
    type=click.FloatRange(0),
    default=0.0,
    help="Pause the thread recorder for this many seconds, and let it go on for as many, in turns; 0: never.",
)
@click.option(
    "--record-spans",
    is_flag=True,
    help="Servers note their calls as spans for LTTng: a CTF trace in events/lttng/ (scenario random).",
)
@click.option("--keep-unscrubbed", is_flag=True, help="Also keep the capture with the request ids in it.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest.")
@click.pass_context
def run(
    context: click.Context,
    /,
    scenario: str,
    output: Path,
    cpu_quota: tuple[str, ...],
    as_json: bool,
    **values: Any,
) -> None:
    """`_listed` has the help text."""
    given = {n: v for n, v in values.items() if context.get_parameter_source(n) != ParameterSource.DEFAULT}
    if cpu_quota:
        given["cpu_quota"] = _quotas(cpu_quota)
    options = faults.options(SCENARIOS[scenario], **given)
    command = shlex.join(["tapscope", *sys.argv[1:]])
    manifest = runner.run(options, output, command=command, say=_tell)
    if as_json:
        click.echo(json.dumps(manifest, indent=2))
        return
    requests = manifest["requests"]
    rows = [
        ("run directory", output),
        ("requests in the run phase", requests["in_run_phase"]),
        ("requests per second", requests["per_second"]),
        ("response time p50/p95/p99 (ms)", "/".join(str(v) for v in requests["response_ms"].values())),
        ("mean requests in Tomcat", requests.get("mean_in_tomcat", "unknown")),
    ]
    if capture := manifest.get("capture"):
        scrubbed = manifest["scrub"]
        rows += [
            (
                "frames mirrored / captured",
                f"{capture['frames_into_bridge']} / {capture.get('captured', 'unknown')}",
            ),
            ("dropped by kernel", capture.get("dropped_by_kernel", "unknown")),
            ("request ids overwritten / left", f"{scrubbed['ids']} / {scrubbed['ids_left']}"),
        ]
    for name, value in rows:
        click.echo(f"{name:32} {value}")


@testbed.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def clean(as_json: bool) -> None:
    """Remove what killed runs left behind: namespaces, processes, control groups, scratch files (root)."""
    result = leftovers.clean(packages.find_root_program("ip"))
    if as_json:
        click.echo(json.dumps(result))
        return
    for name in result["removed"]:
        click.echo(f"removed {name}")
    for name in result["alive"]:
        click.echo(f"{name} is running, left alone")
    if not result["removed"] and not result["alive"]:
        click.echo("nothing to remove")
