"""Truth from request IDs that stand in the capture itself, where nobody overwrote them.

Event monitors hand an ID on to every tier (header, AJP attribute, SQL comment or bound value): in a capture
with payloads each message tells whose it is. The IDs are those of the logs, so that no other token of a
message is taken for one. Messages without an ID (COMMIT, a pool's test) stay unjudged.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tapscope.store.codes import Protocol
from tapscope.store.errors import TapscopeError
from tapscope.validate.event_calls import EventCalls, Names
from tapscope.validate.tap import Tap
from tapscope.validate.testbed import pcapfile
from tapscope.validate.testbed.requests import READERS
from tapscope.validate.testbed.truth import extract
from tapscope.validate.texts import Texts
from tapscope.validate.truth import Keys, Truth

SHORTEST_ID = 3
"""Shorter texts of a log are in too many messages by chance."""


def read(path: Path, logs: EventCalls, seen: Tap, addresses: Names) -> Truth:
    """Truth of every request message in an unscrubbed capture (pcap, Ethernet, not compressed).

    Which port speaks what is what the run says. Raises TapscopeError for a run that says nothing of it, for a
    file that is no such capture, and when no message of it holds an ID of the logs.
    """
    ids = {text for text in logs.request_ids if len(text) >= SHORTEST_ID}
    if not ids:
        raise TapscopeError("the logs name no request IDs", remedy="Log them (docs/validating.md).")
    lengths = [len(text.encode()) for text in ids]
    token = re.compile(rb"[\w@-]{%d,%d}" % (min(lengths), max(lengths)))
    conn = seen.calls["conn"]
    if not len(conn):
        raise TapscopeError(
            "the run has no calls, so it does not say which port of the capture speaks which protocol",
            remedy="Look with `tapscope stats` at what its own capture held, and trace one that has calls.",
        )
    spoken = zip(seen.connections["server_port"][conn].tolist(), seen.calls["protocol"].tolist(), strict=True)
    protocols = {port: Protocol(code).name.lower() for port, code in set(spoken)}
    spoken_by_run = ", ".join(sorted(set(protocols.values())))
    protocols = {port: name for port, name in protocols.items() if name in READERS}
    if not protocols:
        raise TapscopeError(
            f"the run's calls are all of protocols in which no request IDs are looked for: {spoken_by_run}",
            remedy=f"IDs are found in {', '.join(sorted(READERS))}; give a truth file with --truth instead.",
        )
    try:
        capture = pcapfile.read(path)
    except OSError as error:
        raise TapscopeError(
            f"cannot be read: {error.strerror}", path=path, remedy="Check the path."
        ) from error
    found = extract(capture, ids, protocols, {}, pattern=token)
    capture.data.close()
    if not any(call.request_id for call in found.calls):
        raise TapscopeError(
            "no message of this capture holds a request ID of the logs",
            path=path,
            remedy="Give the capture as it was recorded, before IDs were overwritten.",
        )
    names, protocols_used, kinds = Names(), Names(), Names()
    rows = [
        (
            call.ts_ns,
            addresses.code(call.src),
            call.sport,
            addresses.code(call.dst),
            call.dport,
            call.tcp_seq,
            names.code(call.request_id) if call.request_id else -1,
        )
        for call in found.calls
    ]
    block = np.array(rows, dtype=np.int64).reshape(-1, 7)
    return Truth(
        path=str(path),
        keys=Keys(*(block[:, column] for column in range(6))),
        request_id=block[:, 6],
        part=np.zeros(len(block), dtype=np.int64),
        request_ids=names.texts,
        protocol=protocols_used.codes(Texts.of([call.protocol.upper() for call in found.calls])),
        protocols=protocols_used.texts,
        kind=kinds.codes(Texts.of([call.kind for call in found.calls])),
        kinds=kinds.texts,
        counters={f"truth.{name}": count for name, count in found.summary.items()},
    )
