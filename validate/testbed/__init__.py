"""Real servers in network namespaces, watched by a mirror port, the truth recorded beside the capture."""
