"""Live capture for the command line: the engine records, this says what came of it in tcpdump's words."""
