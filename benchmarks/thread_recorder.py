"""What the thread recorder costs a server at its worst: throughput in interleaved pairs, recorder off and on.

    python benchmarks/thread_recorder.py [--pairs 10] [--seconds 2] [--sessions 50] [--work 0 50 500]

The worst case is a server that does nothing but receive and send (vPath, table 3: 50 threads, an echo). A
server of vApp (validate/testbed/vapp) gets calls from another one, which is not recorded and calls as fast as
it can over that many connections; both share this machine, which is saturated. `work` is the mean CPU time in
us that the server spends on a call: 0 is the worst case, real servers spend hundreds. Pairs run in random
order; the interval is Student's, of the mean of the pairs' ratios. Beside the throughput stands the CPU time
of the recorded server per call (the helper thread's included), which depends less on what else runs here.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from scipy import stats

from tapscope.validate.testbed import vapp
from tapscope.validate.threads import record

CALLS = 500
"""Of the recorded server for one request to the one in front of it."""


def place() -> str:
    """ADDRESS:PORT that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "{}:{}".format(*listener.getsockname())


def server(argv: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server of vApp and wait until it is ready."""
    process = subprocess.Popen(
        [str(vapp.program()), *argv], env={**os.environ, **variables}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> float:
    """End a server; CPU seconds that it took."""
    process.terminate()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert process.stdout is not None
    process.stdout.close()
    return usage.ru_utime + usage.ru_stime


def measure(recorded: bool, work_us: float, sessions: int, seconds: float) -> tuple[float, float]:
    """Calls per second that the server answered, and its CPU time per call in us."""
    logs = Path(tempfile.mkdtemp())
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, logs)
        below, front = place(), place()
        asked = server(
            [below, "--go", "0", "--work", str(work_us)], record.environment(logs) if recorded else {}
        )
        asking = server([front, "--below", below, "--go", "1", "--most", str(CALLS)], {})
        done = [0] * sessions
        begin = time.monotonic()

        def session(number: int) -> None:
            address, port = front.split(":")
            connection = HTTPConnection(address, int(port))
            while time.monotonic() < begin + seconds:
                connection.request("GET", "/")
                connection.getresponse().read()
                done[number] += CALLS
            connection.close()

        threads = [threading.Thread(target=session, args=(number,)) for number in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begin
        end(asking)
        return sum(done) / took, 1e6 * end(asked) / sum(done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--work", type=float, nargs="+", default=[0, 50, 500])
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}")
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print(f"{given.pairs} pairs of {given.seconds:g} s, {given.sessions} connections")
    print(f"{'work us':>8} {'':14} {'off':>9} {'on':>9} {'change %':>9}  95 % interval")
    chance = random.Random(1)
    for work_us in given.work:
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(given.pairs):
            for recorded in chance.sample([False, True], 2):
                found[recorded].append(measure(recorded, work_us, given.sessions, given.seconds))
        off, on = np.array(found[False]), np.array(found[True])
        for column, name in enumerate(("calls per s", "CPU us/call")):
            change = 100 * (on[:, column] / off[:, column] - 1)
            half = stats.t.ppf(0.975, len(change) - 1) * change.std(ddof=1) / np.sqrt(len(change))
            print(
                f"{work_us:8g} {name:14} {off[:, column].mean():9.1f} {on[:, column].mean():9.1f} "
                f"{change.mean():9.2f}  {change.mean() - half:.2f} to {change.mean() + half:.2f}"
            )


if __name__ == "__main__":
    main()
