"""What tapscope and tshark count in captures, side by side.

    python tests/against_tshark.py FOLDER... [--decode-as]

Prints Markdown: the sums over all captures below the folders, and each capture where a count differs (here :
tshark). tshark finds protocols by port; --decode-as tells it the ports where tapscope found them.
docs/tshark.md explains the differences in public captures.
"""

from __future__ import annotations

import argparse
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from tapscope import capture
from tapscope.store.codes import MessageKind, Protocol
from tapscope.store.errors import TapscopeError

ENDINGS = (".pcap", ".pcapng", ".cap", ".trace", ".dmp")
TIMEOUT_S = 120
FIELDS = (
    "http.request.method",
    "http.response.code",
    "ajp13.code",
    "mysql.command",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.keep_alive",
    "http2.headers.method",
    "http2.headers.status",
    "http2.type",
    "frame.number",
)

ASKS = (MessageKind.REQUEST, MessageKind.ONE_WAY)
ANSWERS = (MessageKind.RESPONSE, MessageKind.INTERIM)
LOGINS = ("LOGIN", "SSL_REQUEST")
HTTP = (Protocol.HTTP, Protocol.AVATICA)  # Avatica's calls are HTTP to tshark
HTTP2 = (Protocol.HTTP2, Protocol.GRPC)


def below(folder: Path) -> list[Path]:
    """Captures of a folder: files with a capture's ending, perhaps compressed."""
    packed = (".gz", ".zst", ".xz")
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and (path.suffix in ENDINGS or (path.suffix in packed and Path(path.stem).suffix in ENDINGS))
    )


def ports(tables: capture.CaptureTables) -> dict[int, str]:
    """Server ports and what tshark calls the protocol that was found there."""
    names = {Protocol.HTTP: "http", Protocol.AJP: "ajp13", Protocol.MYSQL: "mysql"}
    upgraded = (tables.messages["protocol"] == Protocol.HTTP).any()
    names[Protocol.HTTP2] = "http" if upgraded else "http2"
    c = tables.connections
    found = zip(c["server_port"].tolist(), c["protocol"].tolist(), strict=True)
    return {port: names[Protocol(protocol)] for port, protocol in found if protocol in names}


def counted_here(tables: capture.CaptureTables) -> dict[str, int]:
    """Counts by name."""
    m, c = tables.messages, tables.connections
    kinds, protocols = m["kind"], m["protocol"]

    def count(wanted: tuple[Protocol, ...], *chosen: MessageKind) -> int:
        rows = [p in wanted and k in chosen for p, k in zip(protocols.tolist(), kinds.tolist(), strict=True)]
        return sum(rows)

    classes = [tables.classes[i][1] if i >= 0 else "" for i in m["class_id"].tolist()]
    commands = sum(
        protocol == Protocol.MYSQL and direction == 0 and kind in ASKS and text not in LOGINS
        for protocol, direction, kind, text in zip(
            protocols.tolist(), m["direction"].tolist(), kinds.tolist(), classes, strict=True
        )
    )
    return {
        "packets": tables.counter("packets"),
        "HTTP requests": count(HTTP, MessageKind.REQUEST),
        "HTTP responses, interim ones too": count(HTTP, *ANSWERS),
        "HTTP/2 requests": count(HTTP2, MessageKind.REQUEST),
        "HTTP/2 responses, interim ones too": count(HTTP2, *ANSWERS),
        # The client's one-way messages give calls up: frames that tshark lists with those of the server.
        "HTTP/2 promises": int(
            ((kinds == MessageKind.ONE_WAY) & (protocols == Protocol.HTTP2) & (m["direction"] == 1)).sum()
        ),
        "AJP requests": count((Protocol.AJP,), MessageKind.REQUEST),
        "AJP responses": count((Protocol.AJP,), MessageKind.RESPONSE),
        "MySQL commands, without logins": commands,
        "retransmissions": int(c["retransmits_to_server"].sum() + c["retransmits_to_client"].sum())
        + tables.counter("tcp.syn_retransmission")
        + tables.counter("tcp.syn_ack_retransmission"),
        "out of order": tables.counter("tcp.out_of_order"),
        "keep-alives": tables.counter("tcp.keep_alive"),
    }


def counted_by_tshark(path: Path, decode_as: dict[int, str]) -> dict[str, int]:
    """The same counts of tshark; CalledProcessError with its words when it cannot read the file at all."""
    words = [word for port, name in decode_as.items() for word in ("-d", f"tcp.port=={port},{name}")]
    fields = [word for field in FIELDS for word in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), *words, "-T", "fields", "-E", "occurrence=a", *fields]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    values = {
        field: [value for row in rows for value in row[i].split(",") if value]
        for i, field in enumerate(FIELDS)
    }
    promises = values["http2.type"].count("5")
    return {
        "packets": len(rows),
        "HTTP requests": len(values["http.request.method"]),
        "HTTP responses, interim ones too": len(values["http.response.code"]),
        "HTTP/2 requests": len(values["http2.headers.method"]) - promises,
        "HTTP/2 responses, interim ones too": len(values["http2.headers.status"]),
        "HTTP/2 promises": promises,
        "AJP requests": values["ajp13.code"].count("2"),
        "AJP responses": values["ajp13.code"].count("5"),
        "MySQL commands, without logins": len(values["mysql.command"]),
        "retransmissions": len(values["tcp.analysis.retransmission"]),
        "out of order": len(values["tcp.analysis.out_of_order"]),
        "keep-alives": len(values["tcp.analysis.keep_alive"]),
    }


def report(folders: Sequence[Path], decode_as: bool) -> Iterator[str]:
    """Lines of Markdown."""
    both: list[tuple[str, dict[str, int], dict[str, int]]] = []
    for path in (path for folder in folders for path in below(folder)):
        name = f"{path.parent.name}/{path.name}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of damaged files: what is there is read
                tables = capture.read_files([path])
            theirs = counted_by_tshark(path, ports(tables) if decode_as else {})
        except (TapscopeError, subprocess.TimeoutExpired) as error:
            yield f"{name}: not compared: {error}"
            continue
        both.append((name, counted_here(tables), theirs))
    if not both:
        return
    equal = sum(here == theirs for _, here, theirs in both)
    yield f"{len(both)} captures, of which {equal} agree in all counts."
    yield ""
    yield "| counted | files that have it | equal | here | tshark |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for what in both[0][1]:
        pairs = [(here[what], theirs[what]) for _, here, theirs in both if here[what] or theirs[what]]
        if not pairs:
            continue
        same = sum(a == b for a, b in pairs)
        totals = " | ".join(f"{sum(side):,}" for side in ([a for a, _ in pairs], [b for _, b in pairs]))
        yield f"| {what} | {len(pairs)} | {same} | {totals} |"
    yield ""
    yield "| capture | here : tshark |"
    yield "| --- | --- |"
    for name, here, theirs in both:
        differ = [f"{what} {here[what]} : {theirs[what]}" for what in here if here[what] != theirs[what]]
        if differ:
            yield f"| `{name}` | {'; '.join(differ)} |"


def main() -> None:
    """Compare the captures of the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--decode-as", action="store_true", help="tell tshark the ports found here")
    chosen = parser.parse_args()
    for line in report(chosen.folder, chosen.decode_as):
        print(line, flush=True)


if __name__ == "__main__":
    main()
