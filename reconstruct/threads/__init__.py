"""Which call made which call, told by thread logs (vPath): exact where threads work one request at a time.

Thread logs are observations of the servers' hosts, an input like a capture; no ground truth is in them. They
are read only where the user gives them: nothing of the statistical matcher (reconstruct/match) imports this.
"""
