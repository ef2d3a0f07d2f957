"""What a warehouse holds of every run: queries on the run file, and the columns that their rows become.

Schema `stored` has the tables, with `experiment` as a number; the schema `main` has a view of each, with the
experiment's name and seconds since its begin. Host samples: `stored_samples` and `samples`, made on the fly.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 1


class Copied(NamedTuple):
    """A table: its columns with DuckDB's types, the query that fills it, the column that tells its time."""

    columns: tuple[tuple[str, str], ...]
    query: str
    time: str = ""


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    """`a b INTEGER, c REAL`: names, each list before its type."""
    kinds = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"}
    return tuple((name, kinds[part.split()[-1]]) for part in text.split(", ") for name in part.split()[:-1])


EXPERIMENT = _columns(
    "name path fingerprint TEXT, bytes modified_ns begin_ns end_ns added_ns complete calls traces INTEGER, "
    "tapscope_version options manifest TEXT"
)
"""Static table 1: one row per run. Its number, `id`, stands in `experiment` of all others."""

STATIC: dict[str, tuple[tuple[str, str], ...]] = {
    "host": _columns("name address node TEXT, tables INTEGER"),
    "source": _columns("id INTEGER, path kind format TEXT, bytes first_ns last_ns INTEGER, detail TEXT"),
    "host_column": _columns("host kind name stored_as unit type original TEXT, source rows INTEGER"),
}
"""Static tables 2 to 4: hosts whose logs are there, files that were loaded, columns that the logs had."""

COPIED: dict[str, Copied] = {
    "node": Copied(
        _columns("id INTEGER, name addr TEXT, port INTEGER, protocol TEXT, depth INTEGER"),
        "SELECT id, name, addr, port, protocol, depth FROM v_node",
    ),
    "load": Copied(
        _columns(
            "node TEXT, window_start_ns width_ns INTEGER, load REAL, max arrivals completions INTEGER, "
            "pit_mean_ns REAL, pit_max_ns INTEGER"
        ),
        "SELECT node, window_start_ns, width_ns, load, max, arrivals, completions, pit_mean_ns, pit_max_ns "
        "FROM v_load ORDER BY id",
        "window_start_ns",
    ),
    "trace": Copied(
        _columns(
            "id begin_ns end_ns response_time_ns calls complete INTEGER, probability REAL, "
            "protocol class TEXT, status INTEGER, entry TEXT"
        ),
        "SELECT id, begin_ns, end_ns, response_time_ns, calls, complete, probability, protocol, class, "
        "status, entry FROM v_trace ORDER BY id",
        "begin_ns",
    ),
    "call_class": Copied(
        _columns(
            "node protocol class TEXT, calls unanswered errors INTEGER, response_mean_ns REAL, "
            "response_max_ns INTEGER"
        ),
        "SELECT n.name, p.name, coalesce(t.text, ''), count(*), sum(c.depart_ns < 0), "
        "sum(c.flags & (SELECT value FROM code WHERE kind = 'call_flag' AND name = 'error') > 0), "
        "avg(CASE WHEN c.depart_ns >= 0 THEN c.depart_ns - c.arrive_ns END), "
        "coalesce(max(CASE WHEN c.depart_ns >= 0 THEN c.depart_ns - c.arrive_ns END), -1) "
        "FROM call c LEFT JOIN node n ON n.id = c.server_node LEFT JOIN class t ON t.id = c.class_id "
        "LEFT JOIN code p ON p.kind = 'protocol' AND p.value = c.protocol "
        "GROUP BY c.server_node, c.protocol, c.class_id",
    ),
    "connection": Copied(
        _columns(
            "id INTEGER, protocol client_addr TEXT, client_port INTEGER, server_addr TEXT, server_port "
            "first_ns last_ns syn_ns established_ns closed_ns INTEGER, close_how TEXT, midstream "
            "syn_retransmits retransmits_to_server retransmits_to_client duplicates bytes_to_server "
            "bytes_to_client missing_to_server missing_to_client INTEGER"
        ),
        "SELECT id, protocol, client_addr, client_port, server_addr, server_port, first_ns, last_ns, syn_ns, "
        "established_ns, closed_ns, close_how, midstream, syn_retransmits, retransmits_to_server, "
        "retransmits_to_client, duplicates, bytes_to_server, bytes_to_client, missing_to_server, "
        "missing_to_client FROM v_connection ORDER BY id",
        "first_ns",
    ),
    "counter": Copied(
        _columns("name TEXT, value INTEGER, unit TEXT"), "SELECT name, value, unit FROM counter ORDER BY name"
    ),
    "agreement": Copied(
        _columns("tier subject measure TEXT, value low high REAL, unit TEXT"),
        "SELECT tier, subject, measure, value, low, high, unit FROM agreement ORDER BY id",
    ),
    "host_clock": Copied(
        _columns(
            "host TEXT, from_ns to_ns offset_ns INTEGER, drift_ppb REAL, error_ns applied INTEGER, "
            "method reason TEXT"
        ),
        "SELECT host, from_ns, to_ns, offset_ns, drift_ppb, error_ns, applied, method, reason "
        "FROM host_clock ORDER BY id",
    ),
}
"""Tables that every run has; small beside its calls."""

CALL = Copied(
    _columns(
        "id client_node server_node protocol class_id arrive_ns request_end_ns response_begin_ns depart_ns "
        "status flags INTEGER"
    ),
    "SELECT id, client_node, server_node, protocol, class_id, arrive_ns, request_end_ns, response_begin_ns, "
    "depart_ns, status, flags FROM call ORDER BY id",
    "arrive_ns",
)
"""Filled only when asked for."""

FINDING = _columns(
    "number begin_ns end_ns INTEGER, entry origin cause TEXT, strength peak_queue usual_queue REAL, "
    "very_long INTEGER, longest_ms REAL, evidence TEXT"
)
"""What `tapscope findings` says; filled only when asked for."""


def tables() -> dict[str, tuple[tuple[tuple[str, str], ...], str]]:
    """Every table but `experiment`: columns, and the column that tells its time."""
    made = {name: (columns, "") for name, columns in STATIC.items()}
    made |= {name: (copied.columns, copied.time) for name, copied in COPIED.items()}
    return made | {"call": (CALL.columns, CALL.time), "finding": (FINDING, "begin_ns")}


def statements() -> list[str]:
    """What makes an empty warehouse."""
    made = [
        "CREATE SCHEMA stored",
        "CREATE SCHEMA stored_samples",
        "CREATE SCHEMA samples",
        "CREATE TABLE stored.warehouse (version INTEGER)",
        f"INSERT INTO stored.warehouse VALUES ({VERSION})",
        f"CREATE TABLE stored.experiment (id INTEGER PRIMARY KEY, {_declared(EXPERIMENT)})",
        "CREATE VIEW experiment AS SELECT * FROM stored.experiment",
    ]
    for name, (columns, time) in tables().items():
        made.append(f'CREATE TABLE stored."{name}" (experiment INTEGER, {_declared(columns)})')
        made.append(view(f'main."{name}"', f'stored."{name}"', time))
    return made


def view(name: str, table: str, time: str) -> str:
    """A view across runs: the experiment's name, seconds since its begin, and the table's own columns."""
    since = f"(t.{time} - e.begin_ns) / 1e9 AS at_s, " if time else ""
    return (
        f"CREATE OR REPLACE VIEW {name} AS SELECT e.name AS experiment, {since}t.* EXCLUDE (experiment) "
        f"FROM {table} t JOIN stored.experiment e ON e.id = t.experiment"
    )


def _declared(columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f'"{name}" {kind}' for name, kind in columns)
