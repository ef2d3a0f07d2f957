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
) -> dict[str, Any]: ...
def capture_live(
    interface: str,
    seconds: float | None,
    packets: int | None,
    snaplen: int,
    filter: str,
    write: str,
    ring_bytes: int,
    promiscuous: bool,
    user: str,
    salt: bytes,
    keep_text: bool,
    port_map: Mapping[int, int],
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]: ...
def codes() -> dict[str, Any]: ...
def slot_of_name(name: str) -> int: ...
def looks_like_id(value: str) -> bool: ...
def token_hash(salt: bytes, value: bytes) -> int: ...
