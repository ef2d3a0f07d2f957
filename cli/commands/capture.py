"""`tapscope capture`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from tapscope.cli.options import JSON, KEEP_TEXT, PORT_MAP, TLS_KEYLOG, TLS_KEYLOG_WAIT, Duration, Size
from tapscope.store.errors import ExitCode, TapscopeError


class SnapLength(click.IntRange):
    """Bytes of a packet, where 0 means the whole of it as with tcpdump."""

    whole = 262144

    def __init__(self) -> None:
        super().__init__(64, self.whole)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = click.INT.convert(value, param, ctx)
        return self.whole if number == 0 else int(super().convert(number, param, ctx))


@click.command(short_help="Record or trace packets of an interface, for minutes or for days.")
@click.option(
    "-i",
    "interfaces",
    metavar="IF",
    multiple=True,
    help="Interface to capture on, also several times; any: all of them; dpdk:DEVICE: by DPDK.",
)
@click.option(
    "-w",
    "packet_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write every packet to a pcap file; -: to stdout, the summary to stderr.",
)
@click.option(
    "-o",
    "--output",
    metavar="RUN.db",
    type=click.Path(path_type=Path),
    help="Trace what was seen into a run file.",
)
@click.option(
    "--spool",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Put what was read into this directory twice a second, for a capture of days; `tapscope trace DIR` "
    "reads it, also meanwhile. An existing one is continued.",
)
@click.option(
    "--spool-size",
    "spool_bytes",
    type=Size(),
    metavar="SIZE",
    help="Delete the oldest part beyond SIZE, for example 20GB.",
)
@click.option(
    "--spool-age",
    "spool_age_ns",
    type=Duration(),
    metavar="TIME",
    help="Delete what is older than TIME, for example 7d.",
)
@click.option(
    "--fsync", "sync", is_flag=True, help="Wait for the disk after each write: survives a power cut."
)
@click.option(
    "-C",
    "file_mb",
    type=click.IntRange(1),
    metavar="MB",
    help="With -w: another file after MB million bytes.",
)
@click.option(
    "-G",
    "file_seconds",
    type=click.IntRange(1),
    metavar="S",
    help="With -w: another file after S seconds; the name may hold conversions of strftime (%H%M%S).",
)
@click.option(
    "-W",
    "file_count",
    type=click.IntRange(1),
    metavar="N",
    help="With -C: N files in a ring, the oldest is written over; with -G, or both: stop after N files.",
)
@click.option(
    "-j",
    "clock",
    metavar="TYPE",
    default="",
    help="Who stamps packets, by libpcap's names: host (the default), adapter, adapter_unsynced.",
)
@click.option(
    "--fanout",
    type=click.IntRange(0, 65535),
    metavar="GROUP",
    help="Share the interface with other processes of this group: each gets whole connections.",
)
@click.option("-c", "count", type=click.IntRange(1), metavar="N", help="Stop after N packets.")
@click.option(
    "-s",
    "snaplen",
    type=SnapLength(),
    default=SnapLength.whole,
    show_default=True,
    metavar="BYTES",
    help="Bytes kept of each packet: 64 or more; 0: all.",
)
@click.option("-D", "list_interfaces", is_flag=True, help="List the interfaces and stop.")
@click.option(
    "-Z",
    "user",
    metavar="USER",
    help="Give up root for this user once the interface is open; without it for tapscope or nobody. "
    "root: stay root.",
)
@click.option("-p", "quiet_mode", is_flag=True, help="Do not put the interface into promiscuous mode.")
@click.option("--duration", type=Duration(), metavar="TIME", help="Stop after this time, for example 60s.")
@click.option(
    "--buffer-mb",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Kernel buffer; a larger one survives longer bursts.",
)
@click.option(
    "--queues",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Receive queues of a DPDK device.",
)
@TLS_KEYLOG
@TLS_KEYLOG_WAIT
@PORT_MAP
@KEEP_TEXT
@click.option("--end-with", "parent", type=int, hidden=True, help="Parent process to end with.")
@click.option("--force", is_flag=True, help="Replace the run file if it exists.")
@JSON
@click.argument("filter_", metavar="[FILTER]...", nargs=-1)
def capture(
    interfaces: tuple[str, ...],
    packet_file: Path | None,
    output: Path | None,
    spool: Path | None,
    spool_bytes: int | None,
    spool_age_ns: int | None,
    sync: bool,
    count: int | None,
    snaplen: int,
    list_interfaces: bool,
    user: str | None,
    quiet_mode: bool,
    duration: int | None,
    buffer_mb: int,
    queues: int,
    file_mb: int | None,
    file_seconds: int | None,
    file_count: int | None,
    clock: str,
    fanout: int | None,
    tls_keylog: Path | None,
    tls_keylog_wait_ns: int,
    port_map: dict[int, str],
    keep_text: bool,
    parent: int | None,
    force: bool,
    as_json: bool,
    filter_: tuple[str, ...],
) -> int:
    """Capture on an interface with the option letters of tcpdump. FILTER is a capture filter: tcp port 80

    Ends after -c packets, after --duration, or with Ctrl-C or SIGTERM (a second one: at once); then says how
    many packets were captured, received by the filter, and dropped. SIGUSR1 prints the counters so far.
    Needs root, or the capability cap_net_raw, and gives up either once the interface is open. Exit status 3
    with -o: done, but there was no call, or too much of what came is missing or not understood.
    """
    from tapscope.cli import live, show, summary
    from tapscope.cli.output import note, print_json, progress_bar
    from tapscope.store.runfile import RunFile

    if list_interfaces:
        show.interfaces(live.interfaces(), as_json)
        return ExitCode.DONE
    if file_count and not (file_mb or file_seconds):
        raise click.UsageError("-W needs -C or -G.")
    if (file_mb or file_seconds) and packet_file is None:
        raise click.UsageError("-C and -G turn the packet file: name one with -w FILE.")
    to_stdout = packet_file is not None and str(packet_file) == "-"
    if to_stdout and (file_mb or file_seconds or output is not None):
        raise click.UsageError("Packets on stdout (-w -) know no turns (-C, -G) and no run file (-o).")
    if packet_file is not None and output is not None and packet_file.absolute() == output.absolute():
        raise click.UsageError("-w and -o name the same file: packets and the run need one each.")
    if not interfaces:
        raise click.UsageError("Name an interface: -i IF (-D lists them).")
    if packet_file is None and output is None and spool is None:
        raise click.UsageError(
            "Say where to: -w FILE for packets, -o RUN.db for a traced run, --spool DIR for days."
        )
    if spool is None and (spool_bytes is not None or spool_age_ns is not None):
        raise click.UsageError("--spool-size and --spool-age belong to --spool DIR.")
    reading = output is not None or spool is not None
    for option, given, used, where in (
        ("--keep-text", keep_text, reading, "-o RUN.db or --spool DIR"),
        ("--port-map", port_map, reading, "-o RUN.db or --spool DIR"),
        ("--tls-keylog", tls_keylog, reading, "-o RUN.db or --spool DIR"),
        ("--fsync", sync, reading, "-o RUN.db or --spool DIR"),
        ("--force", force, output is not None, "-o RUN.db"),
        ("--queues", queues > 1, interfaces[0].startswith("dpdk:"), "-i dpdk:DEVICE"),
    ):
        if given and not used:
            raise click.UsageError(f"{option} belongs to {where}.")
    options = live.LiveOptions(
        interface=",".join(interfaces),
        packet_file=packet_file,
        output=output,
        spool=spool,
        spool_bytes=spool_bytes,
        spool_age_ns=spool_age_ns,
        sync=sync,
        port_map=port_map,
        keep_text=keep_text,
        parent=parent,
        count=count,
        snaplen=snaplen,
        seconds=None if duration is None else duration / 1e9,
        ring_bytes=buffer_mb * 1024 * 1024,
        queues=queues,
        file_bytes=(file_mb or 0) * 1_000_000,
        file_seconds=file_seconds or 0,
        file_count=file_count or 0,
        clock=clock,
        fanout=fanout,
        tls_keylog=tls_keylog,
        tls_keylog_wait_ns=tls_keylog_wait_ns,
        promiscuous=not quiet_mode,
        user=user,
        filter=" ".join(filter_),
        force=force,
    )
    with progress_bar() as progress:
        record = live.capture(options, progress)
    with contextlib.redirect_stdout(sys.stderr if to_stdout else sys.stdout):
        if as_json:
            print_json(record)
        else:
            show.live(record)
    if record["packet_file_lost"] and parent is None:  # a parent traces what there is, and says so itself
        raise TapscopeError(
            "the packet file was removed or replaced while it was written: its packets are lost",
            path=record["packet_file_lost"],
            remedy="Capture again and leave the file alone until the end; -C and -G make files to take away.",
        )
    if output is None:
        return ExitCode.DONE
    with RunFile.open(output) as run:
        traced = summary.summary(run)
    for problem in traced["problems"]:
        note(f"tapscope: {problem}.")
    return summary.exit_code(traced)
