"""Messages to calls, links and traces."""
