"""Many runs in one DuckDB file: static tables, and one table across runs for every kind of record."""
