"""Nodes matched beside each other: the kernel lets go of the interpreter while it works, and no node's links
depend on another's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from tapscope.reconstruct._kernel import NodeStream

T = TypeVar("T")


class Crew:
    """At most `threads` threads (0: one per core that this process may use)."""

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self._streams: list[weakref.ref[NodeStream]] = []
        self._stopped = False

    def watch(self, stream: NodeStream) -> NodeStream:
        """The same stream, which ends early when the crew has to stop. The crew does not keep it: what was
        learned of a node is let go when the node is over."""
        self._streams.append(weakref.ref(stream))
        if self._stopped:
            stream.stop()
        return stream

    def run(self, jobs: Sequence[Callable[[], T]], done: Callable[[int], None] | None = None) -> list[T]:
        """What each of the jobs returns; those that begin first are taken first. `done(i)` is called in this
        thread when job i is over. Ctrl-C, or an error in a job, stops the streams that are watched, and all
        threads are over when it is raised."""
        if min(self.threads, len(jobs)) < 2:
            found = []
            for number, job in enumerate(jobs):
                found.append(job())
                if done is not None:
                    done(number)
            return found
        with ThreadPoolExecutor(self.threads, thread_name_prefix="match") as pool:
            running = {pool.submit(job): number for number, job in enumerate(jobs)}
            try:
                for each in as_completed(running):
                    each.result()
                    if done is not None:
                        done(running[each])
            except BaseException:
                self._stopped = True
                for watched in self._streams:
                    if (stream := watched()) is not None:
                        stream.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [each.result() for each in running]
