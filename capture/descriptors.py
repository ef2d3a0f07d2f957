"""Room for as many open files as there are captures."""

from __future__ import annotations

import resource

from tapscope.store.errors import TapscopeError

OTHERS = 100
"""Descriptors that a process has beside those of the captures."""


def make_room(captures: int, of_each: int = 1) -> None:
    """Raise the bound on open files as far as these captures need, which are merged and so open at once.

    A shell's usual bound is 1024, while the system lets every process have many more. Raises TapscopeError
    where it does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = captures * of_each + OTHERS
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise TapscopeError(
            f"{captures} captures are open at once, and this process may open {hard} files",
            remedy="Join them first (mergecap -w all.pcapng FILES), or raise the bound (ulimit -n, as root).",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
