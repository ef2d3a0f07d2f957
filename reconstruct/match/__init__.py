"""Which call made which call: the statistical matcher."""
