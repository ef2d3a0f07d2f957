"""Copies runs into a warehouse: each in one transaction, the same run once, a changed run anew."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tapscope.report.warehouse import layout
from tapscope.report.warehouse.file import Warehouse
from tapscope.report.warehouse.samples import add_samples
from tapscope.store.dynamic import DynamicTable, folded
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

BLOCK = 1 << 22
ROWS_AT_ONCE = 200_000
"""Of a table that is copied: a run of ten million calls must not stand in memory as Python's values."""

RUN_FILE_NAMES = ("run", "tapscope")
"""Stems that do not tell runs apart: their folder's name does."""

Findings = Callable[[RunFile], Sequence[Mapping[str, Any]]]


class Added(NamedTuple):
    """What became of a run file: added, replaced, unchanged, or failed and why."""

    path: str
    name: str
    what: str
    reason: str = ""


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Run files named, and those anywhere below folders named, in a fixed order, each once."""
    found: dict[Path, None] = {}
    for given in paths:
        if not given.exists():
            raise TapscopeError("no such file or folder", path=given, remedy="Check the path.")
        below = sorted(p for p in given.rglob("*.db") if p.is_file()) if given.is_dir() else [given]
        if not below:
            raise TapscopeError(
                "no run file below this folder", path=given, remedy="Runs are files named *.db."
            )
        found.update(dict.fromkeys(path.resolve() for path in below))
    return list(found)


def add_runs(
    warehouse: Warehouse,
    paths: Sequence[Path],
    *,
    name: str = "",
    calls: bool = False,
    findings: Findings | None = None,
) -> Iterator[Added]:
    """Add run files one by one, and say what became of each. One that cannot be read does not stop the rest.

    A file that is there already (same path, size and time, or same content) is left alone; one whose content
    changed replaces its rows. `name` is for a single run; else its file's or folder's name is taken. After an
    interruption the runs that were reported are inside, and adding the same paths again goes on.
    """
    for path in paths:
        try:
            yield _add(warehouse, path, name, calls, findings)
        except (TapscopeError, OSError) as error:
            if isinstance(error, TapscopeError) and error.path == str(warehouse.path):
                raise
            yield Added(str(path), "", "failed", str(error))


def _add(warehouse: Warehouse, path: Path, name: str, calls: bool, findings: Findings | None) -> Added:
    about = path.stat()
    known = {row["path"]: row for row in warehouse.experiments()}
    before = known.get(str(path))
    if before and (before["bytes"], before["modified_ns"]) == (about.st_size, about.st_mtime_ns):
        return Added(str(path), before["name"], "unchanged")
    with RunFile.open(path) as run:
        fingerprint = _fingerprint(path)
        same = next((row for row in known.values() if row["fingerprint"] == fingerprint), None)
        if same is not None:
            if same is before or not Path(same["path"]).exists():  # touched or moved
                _moved(warehouse, same["id"], path)
            return Added(str(path), same["name"], "unchanged", "" if same is before else "the same content")
        with warehouse.transaction():
            if before:
                identity, called = before["id"], name or before["name"]
                warehouse.clear(identity)
                warehouse.connection.execute("DELETE FROM stored.experiment WHERE id = ?", [identity])
            else:
                identity = max((row["id"] for row in known.values()), default=0) + 1
                called = _free_name(name or _name_of(path), {row["name"] for row in known.values()})
            _copy(warehouse, run, identity, calls, findings)
            _describe(warehouse, run, identity, called, fingerprint)
    return Added(str(path), called, "replaced" if before else "added")


def _fingerprint(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _moved(warehouse: Warehouse, identity: int, path: Path) -> None:
    about = path.stat()
    with warehouse.transaction():
        warehouse.connection.execute(
            "UPDATE stored.experiment SET path = ?, bytes = ?, modified_ns = ? WHERE id = ?",
            [str(path), about.st_size, about.st_mtime_ns, identity],
        )


def _name_of(path: Path) -> str:
    return path.parent.name if path.stem in RUN_FILE_NAMES and path.parent.name else path.stem


def _free_name(wanted: str, taken: set[str]) -> str:
    name, ordinal = wanted, 2
    while name in taken:
        name = f"{wanted}-{ordinal}"
        ordinal += 1
    return name


def _describe(warehouse: Warehouse, run: RunFile, identity: int, name: str, fingerprint: str) -> None:
    about = run.path.stat()
    meta = run.all_meta()
    begin, end = run.sql(
        "SELECT coalesce(min(first_ns), -1), coalesce(max(last_ns), -1) FROM connection WHERE first_ns >= 0"
    )[0]
    values = {
        "name": name,
        "path": str(run.path.resolve()),
        "fingerprint": fingerprint,
        "bytes": about.st_size,
        "modified_ns": about.st_mtime_ns,
        "begin_ns": begin,
        "end_ns": end,
        "added_ns": time.time_ns(),
        "complete": int(bool(meta.get("complete", False))),
        "calls": run.count("calls"),
        "traces": run.count("traces"),
        "tapscope_version": str(meta.get("tapscope_version", "")),
        "options": json.dumps(meta.get("options", {}), sort_keys=True),
        "manifest": json.dumps(meta.get("manifest", {}), sort_keys=True),
    }
    names = [column for column, _ in layout.EXPERIMENT]
    warehouse.connection.execute(
        f"INSERT INTO stored.experiment (id, {', '.join(names)}) VALUES (?{', ?' * len(names)})",
        [identity, *(values[column] for column in names)],
    )


def _copy(warehouse: Warehouse, run: RunFile, identity: int, calls: bool, findings: Findings | None) -> None:
    for name, copied in (layout.COPIED | ({"call": layout.CALL} if calls else {})).items():
        _, rows = run.query(copied.query)
        while some := list(islice(rows, ROWS_AT_ONCE)):
            _insert_rows(warehouse, name, identity, copied.columns, some)
    sources = "SELECT id, path, kind, format, bytes, first_ns, last_ns, detail FROM source ORDER BY id"
    _insert_rows(warehouse, "source", identity, layout.STATIC["source"], run.sql(sources))
    tables = run.dynamic_tables()
    kinds: dict[str, list[DynamicTable]] = {}
    for table in tables:
        kinds.setdefault(folded(table.kind), []).append(table)
    source_of = dict(run.sql("SELECT name, source FROM host_table"))
    described = [
        row
        for kind, alike in kinds.items()
        for row in add_samples(warehouse, run, identity, kind, alike, source_of)
    ]
    _insert_rows(warehouse, "host_column", identity, layout.STATIC["host_column"], described)
    _insert_rows(warehouse, "host", identity, layout.STATIC["host"], _hosts(run, tables))
    if findings is not None:
        _insert_rows(
            warehouse, "finding", identity, layout.FINDING, list(map(_finding, *_numbered(findings(run))))
        )


def _numbered(found: Sequence[Mapping[str, Any]]) -> tuple[range, Sequence[Mapping[str, Any]]]:
    return range(1, len(found) + 1), found


def _finding(number: int, found: Mapping[str, Any]) -> tuple[Any, ...]:
    strengths = [one["strength"] for one in found["mechanisms"]]
    evidence = {key: found[key] for key in ("mechanisms", "ruled_out", "not_told", "path") if key in found}
    named = {
        "number": number,
        "strength": max(strengths, default=None),
        "evidence": json.dumps(evidence, default=str),
    }
    return tuple(named.get(column, found.get(column)) for column, _ in layout.FINDING)


def _hosts(run: RunFile, tables: Sequence[DynamicTable]) -> list[tuple[Any, ...]]:
    """Hosts of the manifest and of the logs: name, address, node of that address, tables."""
    manifest = run.meta("manifest", {}).get("hosts") or {}
    node_of = {address: name for name, address in run.sql("SELECT name, addr FROM v_node")}
    rows = []
    for host in sorted({table.host for table in tables} | set(manifest)):
        told = manifest.get(host)
        address = told.get("address") if isinstance(told, Mapping) else told
        address = str(address).partition("/")[0] if address else None
        rows.append((host, address, node_of.get(address or host), sum(t.host == host for t in tables)))
    return rows


def _insert_rows(
    warehouse: Warehouse,
    table: str,
    identity: int,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Any]],
) -> None:
    if not rows:
        return
    made = {}
    for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True):
        if kind == "DOUBLE":
            made[name] = np.array(values, dtype=np.float64)
        elif kind == "BIGINT" and None not in values:
            made[name] = np.array(values, dtype=np.int64)
        else:
            made[name] = np.array(values, dtype=object)
    warehouse.insert(f'stored."{table}"', identity, made)
