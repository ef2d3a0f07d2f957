"""The capture engine: packets to messages, as numpy columns."""
