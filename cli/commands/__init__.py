"""One file per sub-command: its arguments, and the one function it calls."""
