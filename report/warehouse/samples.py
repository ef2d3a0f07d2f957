"""Host samples of all runs: a table per kind of record, made and widened as the runs' own tables ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.clock_layer import tap_times
from tapscope.report.warehouse import layout
from tapscope.report.warehouse.file import Warehouse
from tapscope.store.dynamic import DynamicTable, folded
from tapscope.store.runfile import RunFile

TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"}
WIDER = ("BIGINT", "DOUBLE", "VARCHAR")
"""A later one holds what an earlier one does."""

OWN = ("experiment", "host", "tap_ns")
"""Columns of every table of samples; the last is the end of the sample by the tap's clock."""


def add_samples(
    warehouse: Warehouse,
    run: RunFile,
    identity: int,
    kind: str,
    tables: Sequence[DynamicTable],
    source_of: Mapping[str, int],
) -> list[tuple[Any, ...]]:
    """Copy a run's tables of one kind (of several hosts) into the warehouse's; returns host_column's rows."""
    parts: list[dict[str, NDArray[Any]]] = []
    described = []
    for table in tables:
        stored = _widen(warehouse, kind, table)
        read = run.read_dynamic(table.table)
        length = len(read["end_ns"])
        (by_tap,) = tap_times(run, table.host, read["end_ns"].astype(np.int64))
        part: dict[str, NDArray[Any]] = {"host": np.full(length, table.host, dtype=object), "tap_ns": by_tap}
        parts.append(part | {stored[column.name]: read[column.name] for column in table.columns})
        described += [
            (
                table.host,
                kind,
                c.name,
                stored[c.name],
                c.unit,
                c.type,
                c.original,
                source_of[table.table],
                length,
            )
            for c in table.columns
        ]
    # Hosts mostly have the same columns; where they differ, each goes by itself.
    if len({tuple(part) for part in parts}) == 1:
        parts = [{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}]
    for part in parts:
        if len(part["tap_ns"]):
            warehouse.insert(f'stored_samples."{kind}"', identity, part)
    return described


def _widen(warehouse: Warehouse, kind: str, table: DynamicTable) -> dict[str, str]:
    """Make the kind's table fit for these columns; returns the names that they are stored as.

    A column that the table lacks is added (empty in earlier runs); one of a narrower type is made wider; one
    that has another unit than in earlier runs gets a name of its own, as its numbers must not be mixed.
    """
    target = f'stored_samples."{kind}"'
    known = warehouse.sample_columns(kind)
    changed = not known
    if not known:
        warehouse.connection.execute(
            f"CREATE TABLE {target} (experiment INTEGER, host VARCHAR, tap_ns BIGINT)"
        )
    stored = {}
    for column in table.columns:
        name = f"{column.name}_" if column.name in (*OWN, "at_s") else column.name
        if name in known and known[name][1] != column.unit:
            name = f"{name}_in_{folded(column.unit or 'no unit')}"
        stored[column.name] = name
        wanted = TYPES[column.type]
        if name not in known:
            warehouse.connection.execute(f'ALTER TABLE {target} ADD COLUMN "{name}" {wanted}')
        elif WIDER.index(wanted) > WIDER.index(known[name][0]):
            warehouse.connection.execute(f'ALTER TABLE {target} ALTER COLUMN "{name}" TYPE {wanted}')
        else:
            continue
        known[name] = wanted, column.unit
        changed = True
    if changed:
        warehouse.connection.execute(layout.view(f'samples."{kind}"', target, "tap_ns"))
    return stored
