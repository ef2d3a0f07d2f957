"""Real servers in network namespaces, watched by a mirror port, with the truth recorded beside the capture."""
