"""The capture engine: packets to messages, as numpy columns."""

from __future__ import annotations

from tapscope.capture.read import CaptureTables, capture_live, read_files

__all__ = ["CaptureTables", "capture_live", "read_files"]
