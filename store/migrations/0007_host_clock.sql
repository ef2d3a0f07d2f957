-- How each host's clock runs against the tap's: a layer over the host tables, whose times stay as they were logged. One
-- row is a stretch without a step, or (points = 0) a host whose clock could not be measured, and why. At a time t of the
-- host's clock its offset (host minus tap) is offset_ns + drift_ppb * (t - from_ns) / 1e9. Read where applied = 1.
CREATE TABLE host_clock (
  id INTEGER PRIMARY KEY,
  host TEXT NOT NULL,
  from_ns INTEGER NOT NULL DEFAULT -1,
  to_ns INTEGER NOT NULL DEFAULT -1,
  offset_ns INTEGER NOT NULL DEFAULT 0,
  drift_ppb REAL NOT NULL DEFAULT 0,
  error_ns INTEGER NOT NULL DEFAULT -1,
  drift_error_ppb REAL NOT NULL DEFAULT -1,
  method TEXT NOT NULL DEFAULT '',
  points INTEGER NOT NULL DEFAULT 0,
  r REAL,
  applied INTEGER NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT ''
) STRICT;
