"""What the capture lost, in words and as a verdict: one rule per kind of loss, which says why it matters.

Levels: 0 nothing lost, 1 read with care, 2 parts of the report cannot be trusted. The page shows the worst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tapscope.hostmon.clock_layer import read_clocks
from tapscope.hostmon.fit import misfits
from tapscope.report.losses import undecoded_packets
from tapscope.report.run import Run
from tapscope.report.words import count, share, significant, size
from tapscope.store.codes import CallFlag, LinkKind

GREEN, AMBER, RED = 0, 1, 2
LEVEL_WORDS = ("good", "read with care", "not to be trusted")

SOME = 0.0
MUCH = 0.01
"""Share from which a loss is red: a hundredth of the bytes, packets or calls."""


@dataclass(frozen=True)
class Finding:
    """One line of the banner: its level, what was found, and what it means for the reader."""

    level: int
    what: str
    why: str = ""


def findings(run: Run) -> list[Finding]:
    """Every rule's finding, the worst first; rules may also say that nothing is wrong."""
    found = [
        *_unfinished(run),
        *_emptiness(run),
        *_drops(run),
        *_truncation(run),
        *_gaps(run),
        *_undecoded(run),
        *_unparsed(run),
        *_unanswered(run),
        *_unlinked(run),
        *_clocks(run),
        *(Finding(AMBER, f"{one.names}: {one.what}.", one.remedy) for one in misfits(run.file)),
        *_notes(run),
    ]
    return sorted(found, key=lambda finding: -finding.level)


def verdict(found: list[Finding]) -> int:
    """Worst level of all findings."""
    return max((finding.level for finding in found), default=GREEN)


def _level(part: float, whole: float) -> int:
    if part <= 0:
        return GREEN
    return RED if whole <= 0 or part / whole > MUCH else AMBER


def _counter(run: Run, *names: str) -> int:
    return sum(value for name, value, _ in run.counters if name in names)


def captures(run: Run) -> list[dict[str, Any]]:
    """The sources that are captures."""
    return [source for source in run.sources if source.get("kind", "capture") == "capture"]


def span_rows(run: Run) -> tuple[int, int] | None:
    """Rows of imported span tables, used and left out; None for a run that was made of packets."""
    tables = [source for source in run.sources if source.get("kind") == "spans"]
    if not tables:
        return None
    return sum(int(each["rows"]) for each in tables), sum(int(each["rows_left_out"]) for each in tables)


def packets(run: Run) -> int:
    """Packets in all capture sources."""
    return sum(int(source.get("packets") or 0) for source in captures(run))


def stream_bytes(run: Run) -> tuple[int, int, int]:
    """Stream bytes of all connections: seen, missing, seen but in no message."""
    table = run.connections

    def total(kind: str) -> int:
        return int(table[f"{kind}_to_server"].sum()) + int(table[f"{kind}_to_client"].sum())

    return total("bytes"), total("missing"), total("unparsed")


def _unfinished(run: Run) -> list[Finding]:
    if run.meta.get("complete", True):
        return []
    why = (
        f"The last stage that was done: {run.meta.get('stage', 'none')}. What is here was stored before that."
    )
    return [Finding(RED, "Tracing did not finish.", why)]


def _emptiness(run: Run) -> list[Finding]:
    if (rows := span_rows(run)) is not None:
        return [] if rows[0] else [Finding(RED, "The span table has no rows that could be used.")]
    if packets(run) == 0 and not len(run.connections["first_ns"]):
        return [
            Finding(RED, "The capture holds no packets.", "Is the mirror port set up, and the filter right?")
        ]
    if not len(run.calls["conn"]):
        why = "No known protocol was found. Ports that are not the usual ones can be named to tapscope trace."
        return [Finding(RED, "The capture holds no calls.", why)]
    return []


def _drops(run: Run) -> list[Finding]:
    if (rows := span_rows(run)) is not None:
        used, left_out = rows
        if not left_out:
            return [Finding(GREEN, "Every row of the span table was used.")]
        what = f"{count(left_out, 'row')} of the span table left out ({share(left_out, used + left_out)})."
        why = "tapscope stats names what was wrong with them, and the first line of each kind."
        return [Finding(_level(left_out, used + left_out), what, why)]
    dropped, known = 0, False
    for source in captures(run):
        if source.get("drops") is not None:
            known = True
            dropped += int(source["drops"])
    manifest = run.meta.get("manifest")
    recorded = manifest.get("capture") if isinstance(manifest, dict) else None
    if not known and isinstance(recorded, dict) and "dropped_by_kernel" in recorded:
        known = True
        dropped = int(recorded["dropped_by_kernel"])
    if not known:
        return [Finding(GREEN, "The capture does not record how many packets the kernel dropped.")]
    if not dropped:
        return [Finding(GREEN, "No packet was dropped by the capturing host.")]
    part = share(dropped, packets(run) + dropped)
    what = f"{count(dropped, 'packet')} dropped by the capturing host ({part})."
    return [
        Finding(
            _level(dropped, packets(run) + dropped),
            what,
            "Give tcpdump a larger buffer (-B) or fewer packets.",
        )
    ]


def _truncation(run: Run) -> list[Finding]:
    cut = sum(int(source.get("truncated_packets") or 0) for source in captures(run))
    found = []
    if cut:
        what = f"{count(cut, 'packet')} cut by the snap length ({share(cut, packets(run))})."
        found.append(Finding(_level(cut, packets(run)), what, "Capture whole packets (tcpdump -s 0)."))
    if files := _counter(run, "source.truncated_file"):
        what = f"{count(files, 'capture file ends', 'capture files end')} in the middle of a packet."
        found.append(Finding(AMBER, what, "Everything before that point was read."))
    return found


def _gaps(run: Run) -> list[Finding]:
    seen, missing, _ = stream_bytes(run)
    if not missing:
        return [Finding(GREEN, "Every stream is whole: no byte is missing.")] if seen else []
    what = f"{size(missing)} of the streams never reached the tap ({share(missing, seen + missing)})."
    why = "The calls they carried are missing or lack an end: queue lengths are too low there."
    return [Finding(_level(missing, seen + missing), what, why)]


def _undecoded(run: Run) -> list[Finding]:
    undecoded = undecoded_packets(run.counters)
    if not undecoded:
        return []
    what = f"{count(undecoded, 'packet')} could not be decoded ({share(undecoded, packets(run))})."
    return [
        Finding(
            AMBER if undecoded <= MUCH * packets(run) else RED, what, "The counters below say which kinds."
        )
    ]


def _unparsed(run: Run) -> list[Finding]:
    seen, _, unparsed = stream_bytes(run)
    if not unparsed:
        return [Finding(GREEN, "Every stream byte was understood.")] if seen else []
    what = f"{size(unparsed)} of the streams were seen but not understood ({share(unparsed, seen)})."
    return [Finding(_level(unparsed, seen), what, "Calls inside them are not in this report.")]


def _unanswered(run: Run) -> list[Finding]:
    flags = run.calls["flags"].astype(np.int64)
    lost = int(np.count_nonzero(flags & CallFlag.LOST_RESPONSE))
    clipped = int(np.count_nonzero(flags & CallFlag.CLIPPED))
    silent = int(
        np.count_nonzero(
            (flags & CallFlag.UNANSWERED > 0)
            & (flags & CallFlag.LOST_RESPONSE == 0)
            & (flags & CallFlag.CLIPPED == 0)
        )
    )
    found = []
    if lost:
        what = f"{count(lost, 'call')} lost the response in a gap ({share(lost, len(flags))})."
        found.append(Finding(_level(lost, len(flags)), what, "They count in no response time."))
    if silent:
        what = f"{count(silent, 'call')} without any response ({share(silent, len(flags))})."
        found.append(Finding(_level(silent, len(flags)), what))
    if clipped:
        found.append(
            Finding(GREEN, f"{count(clipped, 'call reaches', 'calls reach')} over the edge of the capture.")
        )
    return found


def _unlinked(run: Run) -> list[Finding]:
    kind = run.links["kind"]
    unknown = int(np.count_nonzero(kind == LinkKind.UNKNOWN))
    if not len(kind):
        return []
    linked = run.links["probability"][kind == LinkKind.LINKED]
    quality = f" Mean probability of a link: {linked.mean():.3f}." if len(linked) else ""
    if not unknown:
        return [Finding(GREEN, f"Every call has a parent or begins a transaction.{quality}")]
    if not run.file.matched:
        return [Finding(GREEN, "Nothing was matched, as was asked (--no-match): there are no transactions.")]
    what = f"{count(unknown, 'call')} of unknown origin ({share(unknown, len(kind))}).{quality}"
    return [
        Finding(AMBER if unknown <= 0.1 * len(kind) else RED, what, "They are missing from the transactions.")
    ]


def _clocks(run: Run) -> list[Finding]:
    """Clocks of hosts that differ from the tap's, and those that nobody knows."""
    measured = read_clocks(run.file)
    unknown = sorted({one.host for one in measured if not one.points})
    found = []
    for host in sorted({one.host for one in measured if one.applied}):
        ahead = [one for one in measured if one.host == host and one.applied]
        by = " then ".join(
            f"{significant(abs(one.offset_ns) / 1e6)} ms {'ahead' if one.offset_ns > 0 else 'behind'}"
            for one in ahead
        )
        error = significant(max(one.error_ns for one in ahead) / 1e6, 2)
        if run.file.raw_clocks:
            found.append(
                Finding(AMBER, f"The clock of {host} is {by} (± {error} ms); its logs are shown so.")
            )
        else:
            what = f"The clock of {host} is {by} of the tap's (± {error} ms)."
            found.append(Finding(GREEN, what, "That is taken off where its logs are shown."))
    if unknown:
        what = (
            f"The {'clock' if len(unknown) == 1 else 'clocks'} of {', '.join(unknown)} could not be measured."
        )
        found.append(Finding(GREEN, what, "Times of their logs are shown as they were logged."))
    return found


def _notes(run: Run) -> list[Finding]:
    found = []
    midstream = int(run.connections["midstream"].sum())
    if midstream:
        total = len(run.connections["midstream"])
        what = f"{count(midstream)} of {count(total, 'connection')} were open before the capture began."
        found.append(Finding(GREEN, what, "What their handshake would have told was inferred."))
    if duplicates := int(run.connections["duplicates"].sum()):
        what = f"{count(duplicates, 'mirror duplicate')} removed."
        found.append(Finding(GREEN, what, "The mirror shows some packets more than once."))
    if resent := int(run.connections["syn_retransmits"].sum()):
        what = f"{count(resent, 'connection request')} (SYN) sent again."
        found.append(Finding(AMBER, what, "A listener did not answer at once: its accept queue may be full."))
    return found
