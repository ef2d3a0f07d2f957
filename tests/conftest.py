"""What every test can rely on."""

from __future__ import annotations

import signal

# A shell without job control starts what it puts in the background with Ctrl-C ignored, and children inherit
# that: programs that the tests interrupt would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
