"""The capture engine: packets to messages, as numpy columns."""

from __future__ import annotations

from tapscope.capture.accounting import Account, account
from tapscope.capture.live import capture_live, capture_to_spool
from tapscope.capture.read import CaptureTables, read_files
from tapscope.capture.spool_read import read_spool

__all__ = [
    "Account",
    "CaptureTables",
    "account",
    "capture_live",
    "capture_to_spool",
    "read_files",
    "read_spool",
]
