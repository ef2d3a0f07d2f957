"""`tapscope capture`."""

from __future__ import annotations

from pathlib import Path

import click

from tapscope.cli.options import JSON, Duration


@click.command(short_help="Record packets from an interface, with drop counters.")
@click.option("-i", "interfaces", metavar="IF", multiple=True, help="Interface to record from (repeatable).")
@click.option("-w", "output", metavar="FILE", type=click.Path(path_type=Path), help="Capture file to write.")
@click.option("-c", "count", type=click.IntRange(1), metavar="N", help="Stop after N packets.")
@click.option(
    "-s",
    "snaplen",
    type=click.IntRange(64, 262144),
    default=262144,
    show_default=True,
    metavar="BYTES",
    help="Bytes kept of each packet.",
)
@click.option("-D", "list_interfaces", is_flag=True, help="List the interfaces and stop.")
@click.option("--duration", type=Duration(), metavar="TIME", help="Stop after this time, for example 60s.")
@click.option(
    "--buffer-mb",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Kernel buffer; a larger one survives longer bursts.",
)
@JSON
@click.argument("filter_", metavar="[FILTER]...", nargs=-1)
def capture(
    interfaces: tuple[str, ...],
    output: Path | None,
    count: int | None,
    snaplen: int,
    list_interfaces: bool,
    duration: int | None,
    buffer_mb: int,
    as_json: bool,
    filter_: tuple[str, ...],
) -> None:
    """Record packets with the option letters of tcpdump. FILTER is a capture filter, such as: tcp port 80

    Ends after -c packets, after --duration, or with Ctrl-C; then says how many packets were captured,
    received by the filter, and dropped. Needs root or CAP_NET_RAW: setcap cap_net_raw+ep on the Python that
    runs tapscope.
    """
    from tapscope.cli import live

    live.run(
        live.LiveOptions(
            list(interfaces), output, count, snaplen, duration, buffer_mb, " ".join(filter_), list_interfaces
        ),
        as_json,
    )
