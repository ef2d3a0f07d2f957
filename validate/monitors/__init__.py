"""Event monitors: one reader per server, each turns the server's own logs into true calls."""
