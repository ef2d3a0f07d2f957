"""Strips of host metrics over the run: what hosts logged, in the windows in which it happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from simulator import Simulation, simulate

from tapscope.hostmon.load import load_host_files
from tapscope.report import hosts
from tapscope.report.run import read
from tapscope.store.runfile import RunFile

MIB = 1 << 20


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(seed=4, users=10, seconds=4.0)


@pytest.fixture(scope="module")
def strips(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The application host collects garbage for 120 ms from 1 s on, and has 300 MiB of dirty pages in the
    third second; the database host has none of it."""
    folder = tmp_path_factory.mktemp("hosts")
    simulation.save(folder / "run.db")
    begin = simulation.begin_ns
    for host in ("app", "db"):
        logs = folder / "dir" / "hosts" / host
        logs.mkdir(parents=True)
        rows = ["time_ns_begin,time_ns_end,usage_ns,dirty_bytes"]
        for sample in range(81):
            at = begin + sample * 50_000_000
            dirty = 300 * MIB if host == "app" and 40 <= sample < 60 else 0
            rows.append(f"{at},{at},{sample * 5_000_000},{dirty}")
        (logs / "cgroup_cpu.csv").write_text("\n".join(rows) + "\n")
    ended = datetime.fromtimestamp((begin + 1_120_000_000) / 1e9, UTC)
    stamp = f"{ended:%Y-%m-%dT%H:%M:%S}.{ended.microsecond // 1000:03d}+0000"
    (folder / "dir" / "hosts" / "app" / "gc.log").write_text(
        f"[{stamp}][1.120s][info][gc] GC(0) Pause Full (Allocation Failure) 30M->9M(64M) 120.000ms\n"
    )
    with RunFile.open(folder / "run.db", write=True) as run:
        load_host_files(run, folder / "dir")
    with RunFile.open(folder / "run.db") as file:
        return {strip["id"]: strip for strip in hosts.strips(read(file))}


def decoded(strip: dict[str, Any], host: str) -> np.ndarray:
    """Values of a host by window, missing ones 0."""
    column = next(series for series in strip["series"] if series["label"] == host)["y"]
    steps = np.array([0 if step is None else step for step in column["delta"]])
    return np.cumsum(steps) / column["scale"]


def test_collections_stand_in_the_windows_that_they_filled(strips: dict[str, dict[str, Any]]) -> None:
    (series,) = strips["gc"]["series"]
    assert series["label"] == "app"
    share = decoded(strips["gc"], "app")
    assert share[20:24].tolist() == [100, 100, 40, 0]
    assert share.sum() == pytest.approx(240)


def test_dirty_pages_are_those_of_the_host_itself(strips: dict[str, dict[str, Any]]) -> None:
    app = decoded(strips["dirty"], "app")
    assert app[42:58].tolist() == [300] * 16
    assert app[:38].max() == app[62:].max() == 0
    assert decoded(strips["dirty"], "db").max() == 0


@pytest.mark.parametrize("cores", [2, 20])
def test_each_core_is_drawn_or_the_busiest_and_the_idlest(simulation, tmp_path, cores: int) -> None:
    """Core 1 works in the second and third second, all others never do."""
    simulation.save(tmp_path / "run.db")
    began = simulation.begin_ns // 1_000_000_000
    lines = ["Linux 6.1 (app) \t2026-01-01 \t_x86_64_\t(2 CPU)\n\n"]
    lines = ["# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n"]
    for second in range(1, 6):
        for core in range(cores):
            busy = 80.0 if core == 1 and second in (2, 3) else 0.0
            lines.append(f"app;1;{began + second};{core};{busy};0;0;0;0;{100 - busy}\n")
    log = tmp_path / "hosts" / "app" / "sadf.csv"
    log.parent.mkdir(parents=True)
    log.write_text("".join(lines))
    with RunFile.open(tmp_path / "run.db", write=True) as run:
        load_host_files(run, log)
    with RunFile.open(tmp_path / "run.db") as file:
        (strip,) = [each for each in hosts.strips(read(file)) if each["id"] == "cores"]
    labels = {series["label"] for series in strip["series"]}
    busiest, idlest = (
        ("app, core 1", "app, core 0") if cores == 2 else ("app, busiest core", "app, idlest core")
    )
    assert labels == {busiest, idlest}
    worked = decoded(strip, busiest)
    assert worked.max() == 80
    assert (worked > 0).sum() == pytest.approx(40, abs=2)
    assert decoded(strip, idlest).max() == 0


def test_what_no_host_logged_has_no_strip(strips: dict[str, dict[str, Any]]) -> None:
    assert {"gc", "dirty"} < set(strips)
    assert not {"utilisation", "disk", "network"} & set(strips)
