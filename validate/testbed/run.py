"""One run of the testbed: start the servers, let the users work, collect, find the truth, scrub."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.threads import record

from . import faults, hosts, leftovers, lttng, parts, scenarios, scrub, truth, turns
from .cgroups import NEIGHBOUR, Groups
from .faults import Faults
from .injectors import Fault
from .net import Network, new_name
from .options import Options
from .packages import Paths, find
from .pauses import collections
from .pcapfile import read
from .processes import Launcher, Process
from .scenario import Bench, Scenario, Server
from .shell import attempt, call
from .tap import Tap

Say = Callable[[str], None]


def run(options: Options, out: Path, *, command: str = "", say: Say = lambda _: None) -> dict[str, Any]:
    """Runs the testbed once and leaves a run directory at `out`. Returns its manifest.

    command: the command line to be recorded. say: told about each step. Raises TapscopeError when something
    that the run needs is missing or fails; everything that was started is gone then, and `out` has no
    manifest.
    """
    options.check()
    scenario = scenarios.get(options.scenario)
    if out.exists() and any(out.iterdir()):
        raise TapscopeError("the directory is not empty", path=out, remedy="Name a new one with -o.")
    servers = scenario.servers(options)
    for server in servers:
        server.check(options)
    faults.check(options.fault, servers)
    if options.record_spans and not any(server.notes_spans for server in servers):
        raise TapscopeError(
            f"no server of the scenario {scenario.name} notes spans",
            remedy="Take the scenario random.",
            exit_code=ExitCode.USAGE,
        )
    paths = find((*scenario.needs, *(lttng.NEEDS if options.record_spans else ())))
    out.mkdir(parents=True, exist_ok=True)
    name = new_name()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminable())
        scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.enter_context(leftovers.noted(name, scratch))
        for server in servers:
            say(f"{server.title} on {server.host}")
            server.prepare(paths)
        say("network namespaces")
        network = stack.enter_context(Network(paths, name, dict(scenario.hosts), options.mirror))
        groups = Groups.make(name, [*network.hosts, NEIGHBOUR], options.cpu_quota)
        stack.callback(groups.remove)
        logs = scratch / "logs"
        logs.mkdir()
        launcher = Launcher(network, groups, logs)
        stack.callback(launcher.stop_all)
        manifest = {"name": name, **_manifest(options, scenario, servers, paths, network, groups, command)}
        bench = Bench(options, paths, launcher, out.absolute(), scratch, scenario.entry)
        if options.record_spans:
            stack.enter_context(lttng.recorded(paths, name, out.absolute() / "events" / "lttng", scratch))
        _Session(scenario, bench, servers, manifest, say).conduct()
    _after(options, out, manifest)
    return manifest


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turns SIGTERM into an exception, so that everything is torn down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(*_: object) -> None:
        raise TapscopeError("ended by SIGTERM", exit_code=ExitCode.INTERRUPTED)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _manifest(
    options: Options,
    scenario: Scenario,
    servers: list[Server],
    paths: Paths,
    network: Network,
    groups: Groups,
    command: str,
) -> dict[str, Any]:
    first_line = {
        name: attempt([paths.program(name), flag])
        for name, flag in (("tcpdump", "--version"), ("collectl", "--version"), ("ip", "-V"))
    }
    return {
        "format": "tapscope testbed run 1",
        "command": command,
        "options": options.record(),
        "hosts": network.hosts,
        "ports": scenario.ports,
        "tiers": {tier: [network.hosts[host] for host in of] for tier, of in scenario.tiers.items()},
        "versions": {
            **{name: text for server in servers for name, text in server.versions(paths).items()},
            "python": platform.python_version(),
            **{
                name: (done.stdout or done.stderr).splitlines()[0].strip()
                for name, done in first_line.items()
            },
        },
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "cpu_model": hosts.cpu_model(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "distribution": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "mirror_method": network.mirror_method,
        "cgroups": {"flavour": groups.flavour, "note": groups.note},
        "notes": [
            "the hosts share one kernel: CPU, disk and memory figures of Collectl are the whole machine's; "
            "network, TCP, processes and cgroup_cpu.csv are the host's own"
        ],
    }


class _Session:
    """The part of a run during which servers are up."""

    def __init__(
        self, scenario: Scenario, bench: Bench, servers: list[Server], manifest: dict[str, Any], say: Say
    ) -> None:
        self.scenario, self.bench, self.servers = scenario, bench, servers
        self.options, self.out, self.launcher = bench.options, bench.out, bench.launcher
        self.manifest, self.say = manifest, say
        self.raw = bench.scratch / "tap.pcap"
        self.faults: list[Fault] = []
        self.thread_logs: list[Path] = []

    def conduct(self) -> None:
        """Starts everything, waits for the users, stops everything, and finds the truth."""
        options, out, paths = self.options, self.out, self.bench.paths
        for host in self.launcher.network.hosts:
            (out / "hosts" / host / "collectl").mkdir(parents=True)
        (out / "truth").mkdir()
        tap = Tap.start(paths, self.raw, self.launcher) if options.mirror and not options.midstream else None
        if options.record_threads:
            # Beside the other scratch files, but open to all: servers give up root before they serve.
            threads = record.folder_for_logs(
                Path(tempfile.mkdtemp(prefix="tapscope-threads-", dir="/var/tmp"))
            )
            self.launcher.variables = record.environment(threads)
            self.thread_logs.append(threads)
        for server in self.servers:
            self.say(f"{server.title} on {server.host}")
            server.start(self.bench)
        self.launcher.variables = {}
        if options.mirror and tap is None:
            tap = Tap.start(paths, self.raw, self.launcher)
        recorders = self._record_hosts()
        self.say(f"{options.users} users, {options.warmup_s:.0f} s warm-up, {options.seconds:.0f} s run")
        self._let_users_work()
        self.say("collecting")
        counters = tap.stop() if tap is not None else {}
        self.manifest["listen"] = {
            host: self.launcher.network.listen_counters(host) for host in self.launcher.network.hosts
        }
        for process in recorders:
            process.stop()
        for server in self.servers:
            self.manifest |= server.collect(self.bench)
        for server in reversed(self.servers):
            self.manifest |= server.finish(self.bench)
        if options.record_threads:
            shutil.move(threads, out / "threads")
        if not options.logs:
            shutil.rmtree(out / "events", ignore_errors=True)
        self._write_faults()
        if tap is not None:
            self._keep_capture(counters)

    def _record_hosts(self) -> list[Process]:
        started = []
        watched: dict[str, list[str]] = {}
        for server in self.servers:
            watched.setdefault(server.host, []).append(server.processes)
        for host, processes in watched.items():
            folder = self.out / "hosts" / host / "collectl"
            program = self.bench.paths.program("collectl")
            argv = hosts.collectl_command(program, host, folder, ",".join(filter(None, processes)))
            started.append(self.launcher.start(host, f"collectl-{host}", argv))
        groups = self.launcher.groups
        config = {
            "flavour": groups.flavour,
            "hosts": [
                {
                    "folders": [str(folder) for folder in groups.accounting(host)],
                    "out": str(self.out / "hosts" / host / "cgroup_cpu.csv"),
                }
                for host in self.launcher.network.hosts
            ]
            # What ran here besides the testbed, so that nobody takes its effects for mistakes of ours.
            + [
                {
                    "folders": [str(folder) for folder in groups.machine()],
                    "out": str(self.out / "truth" / "machine.csv"),
                }
            ],
        }
        if groups.flavour != "none":
            started.append(self._python("tap", "sampler", "hosts", config, sees_cgroups=True))
        return started

    def _python(
        self, host: str, name: str, module: str, config: dict[str, Any], *, sees_cgroups: bool = False
    ) -> Process:
        file = self.bench.scratch / f"{name}.json"
        file.write_text(json.dumps(config))
        env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        return self.launcher.start(
            host,
            name,
            [sys.executable, "-m", f"{__package__}.{module}", str(file)],
            env,
            sees_cgroups=sees_cgroups,
        )

    def _let_users_work(self) -> None:
        options, network = self.options, self.launcher.network
        (self.out / "users").mkdir()
        warmup_ns = time.time_ns() + 1_000_000_000
        run_ns = warmup_ns + int(options.warmup_s * 1e9)
        run_end_ns = run_ns + int(options.seconds * 1e9)
        end_ns = run_end_ns + int(options.rampdown_s * 1e9)
        config = {
            "host": network.hosts[self.scenario.entry[0]],
            "port": self.scenario.entry[1],
            "visitors": self.scenario.visitors,
            "users": options.users,
            "seed": options.seed,
            "mix": options.mix,
            "think_s": options.think_s,
            "in_flight": options.in_flight,
            "keep_alive": options.keep_alive,
            "burst_ns": int(options.burst_s * 1e9),
            "ids": options.logs,
            # First requests are spread over the warm-up's first part, so that no wave is left when the run
            # begins.
            "spread_s": min(options.warmup_s * 0.6, max(options.think_s, 1.0)),
            "warmup_ns": warmup_ns,
            "end_ns": end_ns,
            "out": str(self.out / "users" / "requests.csv"),
        }
        if options.record_threads:  # beside the servers' logs: users are no server's caller in these
            logs = record.folder_for_logs(self.out / "users" / "threads")
            self.launcher.variables = record.environment(logs)
            self.thread_logs.append(logs)
        process = self._python("client", "users", "users", config)
        self.launcher.variables = {}
        takes_turns = []
        if options.thread_turns_s:
            takes_turns = turns.plan(run_ns, run_end_ns, int(options.thread_turns_s * 1e9), options.seed)
            self.manifest["turns_ns"] = takes_turns
        with (
            turns.Turns(takes_turns, self._record_threads),
            Faults(faults.plan(options, run_ns, run_end_ns), self.bench, self.servers) as caused,
        ):
            while not process.ended():
                for server in self.servers:
                    server.watch()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.handle.wait(1.0)
                if time.time_ns() > end_ns + 90_000_000_000:
                    raise TapscopeError("the emulated users did not end", path=process.log)
        self.faults += caused.done()
        if process.handle.returncode != 0:
            raise TapscopeError(f"the emulated users failed: {process.tail()}", path=process.log)
        self.manifest["phases_ns"] = {
            "warmup_begin": warmup_ns,
            "run_begin": run_ns,
            "run_end": run_end_ns,
            "rampdown_end": end_ns,
        }
        self.manifest["users_cpu"] = json.loads(process.log.read_text().strip().splitlines()[-1])

    def _record_threads(self, on: bool) -> None:
        for folder in self.thread_logs:
            (record.resume if on else record.pause)(folder)

    def _write_faults(self) -> None:
        """Faults that were caused, and the collections that the JVMs logged."""
        begin, end = (self.manifest["phases_ns"][name] for name in ("warmup_begin", "rampdown_end"))
        for gc_log in sorted((self.out / "hosts").glob("*/gc.log")):
            self.faults += [p for p in collections(gc_log, gc_log.parent.name) if begin <= p.end_ns < end]
        faults.write(self.faults, self.out / faults.RECORD)

    def _keep_capture(self, counters: dict[str, int]) -> None:
        """Finds the truth in the capture, if it is wanted, and keeps the capture without its ids."""
        out = self.out
        with (out / "users" / "requests.csv").open() as file:
            asked = {row["request_id"] for row in csv.DictReader(file)} - {""}
        ids = parts.with_parts(asked, self.scenario.parts)
        capture = read(self.raw)
        if self.options.truth:
            self.say("truth")
            holders = self.scenario.holders(capture, self.bench, self.servers)
            found = truth.extract(capture, ids, self.scenario.protocols, holders, bool(self.scenario.parts))
            truth.write(found, out / "truth" / "calls.csv.gz")
            self.manifest["truth"] = found.summary
        capture.data.close()
        self.manifest["capture"] = {
            **counters,
            "packets_in_file": capture.packets,
            "not_tcp": capture.not_tcp,
            "cut": capture.cut,
            "bytes": self.raw.stat().st_size,
        }
        self.say("scrubbing")
        done = scrub.scrub(self.raw, out / "capture" / "tap.pcap", ids)
        self.manifest["scrub"] = done.record()
        if self.options.keep_unscrubbed:
            shutil.move(self.raw, out / "truth" / "unscrubbed.pcap")


def _quantiles(ascending: list[float]) -> dict[str, float]:
    last = len(ascending) - 1
    shares = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return {q: round(ascending[min(last, int(len(ascending) * f))], 3) for q, f in shares if ascending}


def _after(options: Options, out: Path, manifest: dict[str, Any]) -> None:
    """Adds figures that the run directory gives, and writes the manifest."""
    statuses: dict[str, int] = {}
    latencies, waits = [], []
    phases = manifest["phases_ns"]
    with (out / "users" / "requests.csv").open() as file:
        for row in csv.DictReader(file):
            statuses[row["status"]] = statuses.get(row["status"], 0) + 1
            if phases["run_begin"] <= int(row["start_ns"]) < phases["run_end"] and int(row["end_ns"]) > 0:
                latencies.append((int(row["end_ns"]) - int(row["start_ns"])) / 1e6)
                waits.append((int(row["end_ns"]) - int(row["intended_ns"])) / 1e6)
    latencies.sort()
    manifest["requests"] = {
        "by_status": statuses,
        "in_run_phase": len(latencies),
        "per_second": round(len(latencies) / options.seconds, 2),
        "mean_in_flight": round(sum(latencies) / 1e3 / options.seconds, 3),
        "response_ms": _quantiles(latencies),
        # From the moment a user wanted to ask: with the time for its turn and for the connection (SYN drops).
        "wait_ms": _quantiles(sorted(waits)),
    }
    arrivals = sorted((out / "events").glob("*/requests.tsv"))
    if arrivals:
        begin, end = phases["run_begin"], phases["run_end"]
        inside = 0
        for path in arrivals:
            with path.open() as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    ua, ud = int(row["ua_us"]) * 1000, int(row["ud_us"]) * 1000
                    inside += max(0, min(ud, end) - max(ua, begin))
        manifest["requests"]["mean_in_tomcat"] = round(inside / (end - begin), 3)
    raw_files = sorted((out / "hosts").glob("*/collectl/*.gz"))
    if raw_files:
        head = call(["sh", "-c", f"zcat '{raw_files[0]}' 2>/dev/null | head -20"])
        line = next((x for x in head.splitlines() if x.startswith("# NumDisks")), "")
        manifest["collectl_disks"] = line.removeprefix("# ").strip()
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
