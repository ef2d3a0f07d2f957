"""The `tapscope` command: arguments, tables and messages; the work is done by the stages below."""

import os

# Before anything imports numpy: no matrix here is worth threads, and BLAS's would spin beside the engine's
# (nearly half of the CPU time of a short command).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
