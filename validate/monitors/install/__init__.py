"""Event monitors put into stock servers by command: what each server's configuration gets, and how it goes
again."""
