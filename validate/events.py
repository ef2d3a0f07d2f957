"""Event-monitor logs of a run: find them, read them, settle their zones, and join what belongs to one
call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.ctf import is_metadata
from tapscope.store.errors import TapscopeError
from tapscope.validate.event_calls import (
    DOWNSTREAM,
    EVENT_CALL,
    RAW_CALL,
    TIERS,
    Cells,
    Collector,
    EventCalls,
    Growing,
    MarkKind,
    Table,
    empty_table,
    without_duplicates,
)
from tapscope.validate.joining import last_before
from tapscope.validate.monitors import (
    apache,
    avatica,
    cjdbc,
    client,
    ctf,
    mariadb,
    milliscope,
    nginx,
    performance_schema,
    slow_file,
    tomcat,
)
from tapscope.validate.monitors.lines import Format, LogFile, head, stem, wrong_format
from tapscope.validate.zones import settle_zones

FORMATS: tuple[Format, ...] = (
    apache.ACCESS,
    apache.ERROR,
    nginx.ACCESS,
    milliscope.APACHE,
    milliscope.NGINX,
    tomcat.ACCESS,
    tomcat.EVENTS,
    avatica.CALLS,  # before the application's files, which have the same columns but one
    avatica.STATEMENTS,
    tomcat.REQUESTS,
    tomcat.STATEMENTS,
    cjdbc.REQUESTS,
    mariadb.SLOW,
    mariadb.GENERAL,
    slow_file.SLOW,
    performance_schema.STATEMENTS,
    client.REQUESTS,
    ctf.SPANS,
)
"""In the order they are read: the database finds bound request IDs only when the other tiers' logs are
known."""

STAMP_NS = 1_000
"""Half width of a stamp in whole microseconds, rounded up."""


def load(directory: str | Path, zone: str | None = None, more: Sequence[Path] = ()) -> EventCalls:
    """Read every event-monitor log below `directory`. Formats are recognised by content, not by name.

    directory : folder with the logs, flat or one folder per host (or server)
    zone      : of logs whose stamps name none (Apache's error log, MariaDB's tables): a name such as "UTC" or
                "Europe/Berlin". None: found from request IDs that also stand in a log with absolute times;
                where that is impossible UTC is assumed and counted.
    more      : single files beside the folder, such as the load generator's own record
    Raises TapscopeError for a missing folder, no log at all, a file whose name promises a log that it is not,
    and an unknown zone. Bad lines, duplicates and missing IDs are counted.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise TapscopeError(
            "no such folder of event-monitor logs",
            path=directory,
            remedy="Name the run's events folder with --events.",
        )
    collector = Collector()
    files = _recognised(directory, collector, more)
    if not files:
        expected = ", ".join(form.name for form in FORMATS)
        raise TapscopeError(
            "no event-monitor log found",
            path=directory,
            remedy=f"It should hold at least one of: {expected}.",
        )
    for form, file in files:
        form.read(file, collector)
    return _joined(collector, zone)


def _recognised(directory: Path, collector: Collector, more: Sequence[Path]) -> list[tuple[Format, LogFile]]:
    """The files that are logs, in the order of FORMATS; a rotated file before the one that followed it."""
    found = []
    below = sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith("."))
    traces = {path.parent for path in below if is_metadata(path)}  # whose other files are its streams
    below = [path for path in below if is_metadata(path) or not traces.intersection(path.parents)]
    places = [(path, path.relative_to(directory).parts[:-1]) for path in below]
    for path, folders in (*places, *((path, (path.parent.name,)) for path in more)):
        file = LogFile(path, folders[0] if folders else "")
        first = head(path)
        promised = [form for form in FORMATS if form.family.match(stem(path))]
        if not first:
            collector.count("empty_file", 1 if promised else 0)
            tiers = {form.tier for form in promised} if apache.ERROR not in promised else ()
            collector.empty += [(str(path), tuple(sorted(tiers, key=TIERS.index)))] if tiers else []
            continue
        place = next((i for i, form in enumerate(FORMATS) if form.recognise(first)), -1)
        if place >= 0:
            found.append((place, FORMATS[place], file))
        elif promised:
            raise wrong_format(path, 1, first[0], " or ".join(form.expected for form in promised))
        else:
            collector.count("ignored_file")
    found.sort(key=lambda item: (item[0], item[2].host))
    return [(form, file) for _, form, file in found]


def _joined(collector: Collector, zone: str | None) -> EventCalls:
    calls = collector.calls.table()
    marks = collector.marks.table()
    gaps = collector.gaps.table()
    settle_zones(collector, calls, marks, gaps, zone)
    calls, repeated = without_duplicates(calls)
    collector.count("duplicate_line", repeated)
    if not np.any(calls["tier"] == TIERS.index("app")):
        calls = _with_inside_as_calls(calls, marks)
    else:
        _narrow_down(calls, marks, collector)
    _ids_from_statements(calls, marks, collector)
    order = np.argsort(calls["arrive_ns"], kind="stable")
    calls = {name: values[order] for name, values in calls.items()}
    downstream = _downstream(calls, marks, collector)
    _count_ids(calls, collector)
    return EventCalls(
        calls={column.name: calls[column.name] for column in EVENT_CALL},
        downstream=downstream,
        callers=_callers(calls, downstream, marks),
        gaps=gaps,
        hosts=collector.hosts.texts,
        request_ids=collector.request_ids.texts,
        commands=collector.commands.texts,
        sources=collector.sources,
        empty=collector.empty,
        counters=collector.counters(),
    )


def _of_kind(marks: Table, kind: MarkKind) -> Table:
    chosen = marks["kind"] == kind
    return {name: values[chosen] for name, values in marks.items()}


def _with_inside_as_calls(calls: Table, marks: Table) -> Table:
    """Where the application tier has no access log, the application's own intervals are its calls."""
    inside = _of_kind(marks, MarkKind.INSIDE)
    count = len(inside["at_ns"])
    added = empty_table(RAW_CALL)
    for column in RAW_CALL:
        default = 0 if column.name in ("protocol", "line") else -1
        added[column.name] = np.full(count, default, dtype=column.dtype)
    for name in ("tier", "host", "request_id", "source"):
        added[name] = inside[name].astype(added[name].dtype)
    added["arrive_ns"], added["depart_ns"] = inside["at_ns"], inside["until_ns"]
    added["arrive_precision_ns"] = added["depart_precision_ns"] = np.full(count, STAMP_NS, dtype=np.int64)
    return {name: np.concatenate([values, added[name]]) for name, values in calls.items()}


def _narrow_down(calls: Table, marks: Table, collector: Collector) -> None:
    """Arrivals known to a millisecond, by intervals that the application measured inside the call; in place.

    begin <= arrival < begin + 1 ms, arrival <= inside begin, departure = arrival + stay >= inside end.
    """
    inside = _of_kind(marks, MarkKind.INSIDE)
    app = np.flatnonzero(calls["tier"] == TIERS.index("app"))
    earliest = calls["arrive_ns"][app] - calls["arrive_precision_ns"][app]
    found = last_before(calls["request_id"][app], earliest, inside["request_id"], inside["at_ns"])
    collector.count("inside_without_call", int(np.count_nonzero(found < 0)))
    mark = np.flatnonzero(found >= 0)
    row = app[found[mark]]
    stay = calls["depart_ns"][row] - calls["arrive_ns"][row]
    low = np.maximum(earliest[found[mark]], inside["until_ns"][mark] - stay)
    high = np.minimum(calls["arrive_ns"][row] + calls["arrive_precision_ns"][row], inside["at_ns"][mark])
    latest = calls["depart_ns"][row] + calls["depart_precision_ns"][row]
    fits = (low <= high) & (inside["at_ns"][mark] <= latest)
    collector.count("inside_contradicts_call", int(np.count_nonzero(~fits)))
    row, low, high, stay = row[fits], low[fits], high[fits], stay[fits]
    calls["arrive_ns"][row] = (low + high) // 2
    calls["depart_ns"][row] = calls["arrive_ns"][row] + stay
    half = np.maximum((high - low + 1) // 2, STAMP_NS)
    calls["arrive_precision_ns"][row] = half
    calls["depart_precision_ns"][row] = half


def _ids_from_statements(calls: Table, marks: Table, collector: Collector) -> None:
    """IDs of database calls that carry none (COMMIT and its like): the application logged which request had
    the connection at that time; in place."""
    statements = _of_kind(marks, MarkKind.STATEMENT)
    known = statements["thread"] >= 0
    at, until = statements["at_ns"][known], statements["until_ns"][known]
    nameless = np.flatnonzero((calls["tier"] == TIERS.index("db")) & (calls["request_id"] < 0))
    arrive = calls["arrive_ns"][nameless]
    found = last_before(statements["thread"][known], at, calls["thread"][nameless], arrive)
    inside = (found >= 0) & (arrive <= until[found] if len(until) else np.zeros(len(found), dtype=bool))
    calls["request_id"][nameless[inside]] = statements["request_id"][known][found[inside]]
    collector.count("id_from_statement", int(np.count_nonzero(inside)))


def _downstream(calls: Table, marks: Table, collector: Collector) -> Table:
    """Downstream intervals of the calls, in order of call and time."""
    receiving = _of_kind(marks, MarkKind.RECEIVING)
    sending = _of_kind(marks, MarkKind.SENDING)
    statement = _of_kind(marks, MarkKind.STATEMENT)
    owner = _owners(calls, sending)
    collector.count("sending_without_call", int(np.count_nonzero(owner < 0)))
    # The first receiving after a sending, of the same request: the last one when time runs backwards.
    answer = last_before(
        receiving["request_id"], -receiving["at_ns"], sending["request_id"], -sending["at_ns"]
    )
    handled = np.append(calls["handled_ns"], -1)[owner]
    received = np.where(handled >= 0, sending["at_ns"] + handled, -1)
    received[answer >= 0] = receiving["at_ns"][answer[answer >= 0]]
    found = Growing(DOWNSTREAM)
    for of, marked, ordinal, until, thread, command in (
        (owner, sending, 0, received, -1, -1),
        (
            _owners(calls, statement),
            statement,
            np.maximum(statement["ordinal"], 0),
            statement["until_ns"],
            statement["thread"],
            statement["command"],
        ),
    ):
        columns: dict[str, Cells] = {"call": of, "ordinal": ordinal, "send_ns": marked["at_ns"]}
        columns |= {"receive_ns": until, "precision_ns": STAMP_NS, "thread": thread, "command": command}
        found.block(len(of), columns)
    table = found.table()
    lost = int(np.count_nonzero(table["call"][len(owner) :] < 0))
    collector.count("statement_without_call", lost)
    order = np.lexsort([table[name] for name in ("receive_ns", "send_ns", "ordinal", "call")])
    order = order[np.searchsorted(table["call"][order], 0) :]  # those of no call come first
    return {name: values[order] for name, values in table.items()}


def _callers(calls: Table, downstream: Table, marks: Table) -> Table:
    """Every tier's calls as the tier before it logged them: the client's of web, web's of app, app's of
    the middleware where there is one, else of db."""
    client = _of_kind(marks, MarkKind.CLIENT)
    below = {name: values[downstream["receive_ns"] >= 0] for name, values in downstream.items()}
    return {
        "tier": np.concatenate([client["tier"], _called_by(calls)[calls["tier"][below["call"]]]]),
        "send_ns": np.concatenate([client["at_ns"], below["send_ns"]]),
        "receive_ns": np.concatenate([client["until_ns"], below["receive_ns"]]),
        "command": np.concatenate([client["command"], below["command"]]).astype(np.int32),
        "by": np.concatenate([np.full(len(client["at_ns"]), -1), calls["tier"][below["call"]]]).astype(
            np.int32
        ),
        "host": np.concatenate([client["host"], calls["host"][below["call"]]]).astype(np.int32),
        "request_id": np.concatenate([client["request_id"], calls["request_id"][below["call"]]]).astype(
            np.int32
        ),
        "thread": np.concatenate([client["thread"], below["thread"]]),
    }


def _called_by(calls: Table) -> NDArray[np.int32]:
    """Which tier each tier calls: the next one in TIERS; no run has a middleware that it has no log of."""
    middle = TIERS.index("middle")
    called = np.arange(1, len(TIERS) + 1, dtype=np.int32)
    if not np.any(calls["tier"] == middle):
        called[middle - 1] = middle + 1
    return called


def _owners(calls: Table, marks: Table) -> NDArray[np.int64]:
    """For every mark the call of its tier that it belongs to: by ID, else by the second ID; -1 none."""
    found = np.full(len(marks["at_ns"]), -1, dtype=np.int64)
    for name in ("request_id", "alias"):
        for tier in np.unique(marks["tier"]).tolist():
            row = np.flatnonzero(calls["tier"] == tier)
            open_marks = np.flatnonzero((marks["tier"] == tier) & (found < 0))
            if not len(row) or not len(open_marks):
                continue
            earliest = calls["arrive_ns"][row] - calls["arrive_precision_ns"][row]
            ids, at = marks["request_id"][open_marks], marks["at_ns"][open_marks]
            before = last_before(calls[name][row], earliest, ids, at)
            call = row[before]
            inside = (before >= 0) & (at <= calls["depart_ns"][call] + calls["depart_precision_ns"][call])
            found[open_marks[inside]] = call[inside]
    return found


def _count_ids(calls: Table, collector: Collector) -> None:
    """IDs that are missing, and those that a tier which serves a request once saw more than once."""
    for code, tier in enumerate(TIERS):
        ids = calls["request_id"][calls["tier"] == code]
        collector.count(f"{tier}.missing_id", int(np.count_nonzero(ids < 0)))
        if tier in ("web", "app"):  # further down, one request makes many calls
            _, times = np.unique(ids[ids >= 0], return_counts=True)
            collector.count(f"{tier}.duplicate_id", int(np.sum(times - 1)))
