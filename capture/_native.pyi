from collections.abc import Callable, Mapping, Sequence
from typing import Any

class SourceError(Exception):
    """args: what, path, offset (None = nowhere in particular), remedy."""

def read_files(
    paths: Sequence[str],
    salt: bytes,
    keep_text: bool,
    port_map: Mapping[int, int],
    progress: Callable[[int, int], None] | None,
    limits: Mapping[str, int],
    tls_keylog: str,
    threads: int,
) -> dict[str, Any]: ...

class Capture:
    """A capture that hands over its tables while it runs. One thread at a time."""

    @staticmethod
    def of_interfaces(
        *,
        interfaces: Sequence[str],
        snaplen: int,
        filter: str,
        ring_bytes: int,
        promiscuous: bool,
        clock: str,
        fanout: int,
        salt: bytes,
        keep_text: bool,
        port_map: Mapping[int, int],
        handed_over: bool,
        tls_keylog: str,
        tls_key_wait_ns: int,
        dissect: bool,
    ) -> Capture: ...
    @staticmethod
    def of_files(
        *,
        paths: Sequence[str],
        salt: bytes,
        keep_text: bool,
        port_map: Mapping[int, int],
        limits: Mapping[str, int],
        tls_keylog: str = "",
    ) -> Capture: ...
    def write_to(self, *, path: str, bytes: int, seconds: int, files: int, snaplen: int) -> None: ...
    def packet_file(self) -> str: ...
    def packet_file_lost(self) -> bool: ...
    def run(self, milliseconds: int, packets: int) -> bool: ...
    def rows(self) -> int: ...
    def finish(self) -> None: ...
    def drain(self) -> dict[str, Any]: ...
    def tables(self, interrupted: bool) -> dict[str, Any]: ...
    def status(self) -> dict[str, Any]: ...

def drop_privileges(user: str) -> None: ...
def codes() -> dict[str, Any]: ...
def slot_of_name(name: str) -> int: ...
def looks_like_id(value: str) -> bool: ...
def token_hash(salt: bytes, value: bytes) -> int: ...
