"""Load, throughput and response time per node and window."""
