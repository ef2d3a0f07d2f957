"""The shop of the testbed, served by gunicorn with the packages' own Python; it imports nothing of ours."""
