"""`tapscope monitors`: arguments only."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tapscope.cli.options import choice_option, path_option
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.monitors import mariadb_export
from tapscope.validate.monitors.install import changes
from tapscope.validate.monitors.install.servers import SERVERS, Server, get

EXPORTS = {
    "slow_log": mariadb_export.SLOW_LOG + ";\n",
    "performance_schema": mariadb_export.PERFORMANCE_SCHEMA,
}

_SERVER = click.option(
    "--server",
    "names",
    type=click.Choice(list(SERVERS)),
    multiple=True,
    required=True,
    help="Which server; repeatable.",
)
_INTO = path_option(
    "--into", help="The server's configuration tree, where it is not that of Debian (see `monitors list`)."
)
_LOG = click.option("--log", help="Kind of log, where a server has several (see `monitors list`).")


@click.group()
def monitors() -> None:
    """Event monitors: let the servers of every tier log when each request came and went."""


def _tree(server: Server, into: Path | None, names: tuple[str, ...]) -> Path:
    if into is not None and len(names) > 1:
        raise TapscopeError(
            "--into is the tree of one server", remedy="Name one --server.", exit_code=ExitCode.USAGE
        )
    root = into or server.tree()
    if not root.is_dir():
        raise TapscopeError(
            f"no configuration of {server.name} here",
            path=root,
            remedy="Name its configuration tree with --into.",
        )
    return root


@monitors.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_servers(as_json: bool) -> None:
    """List the servers, what their monitors tell, and what is changed in them."""
    rows = [
        {
            "server": server.name,
            "tier": server.tier,
            "tells": server.tells,
            "changed": server.changed,
            "tree": str(server.tree()),
            "logs": list(server.logs),
        }
        for server in SERVERS.values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['server']:8} tier {row['tier']}, in {row['tree']}; logs: {', '.join(row['logs'])}")
        click.echo(f"{'':8} tells    {row['tells']}")
        click.echo(f"{'':8} changed  {row['changed']}")


@monitors.command()
@_SERVER
@_INTO
@_LOG
@click.option("--print", "only_print", is_flag=True, help="Print what would be put in, and change nothing.")
@click.option("--dry-run", is_flag=True, help="Show the changes as a diff, and make none.")
@click.option("--remove", is_flag=True, help="Take everything away again; the files are as they were.")
def install(
    names: tuple[str, ...], into: Path | None, log: str | None, only_print: bool, dry_run: bool, remove: bool
) -> None:
    """Put event monitors into the configuration of stock servers. Twice does no harm.

    No server is restarted; the commands that make it begin are printed.
    """
    for name in names:
        server, kind = get(name, log)
        root = _tree(server, into, names)
        wanted = server.changes(root, kind)
        if only_print:
            click.echo("\n".join(changes.printed(wanted)), nl=False)
            continue
        planned = changes.steps(root, wanted, remove=remove)
        if dry_run:
            click.echo("".join(step.diff() for step in planned), nl=False)
            continue
        made = changes.carry_out(root, planned)
        for step in made:
            click.echo(f"{step.verb:8} {step.path}")
        if not made:
            click.echo(f"{name}: nothing to do")
            continue
        for problem in () if remove else server.problems(root):
            click.echo(f"{name}: {problem}", err=True)
        click.echo(f"Nothing was restarted. To make it take effect: {' && '.join(server.afterwards)}")


@monitors.command()
@_SERVER
@_INTO
@_LOG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(names: tuple[str, ...], into: Path | None, log: str | None, as_json: bool) -> ExitCode:
    """Say whether event monitors are installed, and what keeps them from logging.

    Exit status 1 when a server has none or has a problem.
    """
    found = []
    for name in names:
        server, kind = get(name, log)
        root = _tree(server, into, names)
        state = changes.state(changes.steps(root, server.changes(root, kind)))
        found.append({"server": name, "tree": str(root), "state": state, "problems": server.problems(root)})
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        for row in found:
            click.echo(f"{row['server']}: {row['state']} in {row['tree']}")
            for problem in row["problems"]:
                click.echo(f"  {problem}")
        for name in names:
            click.echo(f"logs of {name}: {'; '.join(SERVERS[name].fetch)}")
    if any(row["state"] != "installed" or row["problems"] for row in found):
        return ExitCode.ERROR
    return ExitCode.DONE


@monitors.command()
@choice_option("--log", EXPORTS, default="slow_log", help="Which of MariaDB's tables.")
def export(log: str) -> None:
    """Print the SQL that exports MariaDB's log, for `mariadb --batch`."""
    click.echo(EXPORTS[log], nl=False)
