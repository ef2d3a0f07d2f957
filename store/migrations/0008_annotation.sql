-- Dapper's trace and parent of a span, where the input names them, and what a traced program noted in its spans. value is
-- NULL for an event at a time (a timestamp annotation); of a key-value annotation it is a salted hash, or with
-- --keep-text the value itself. message_id is that of span, or of a span that was left out.
ALTER TABLE span ADD COLUMN trace_id TEXT NOT NULL DEFAULT '';
ALTER TABLE span ADD COLUMN true_parent_id TEXT NOT NULL DEFAULT '';

CREATE TABLE annotation (
  id INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL,
  time_ns INTEGER NOT NULL,
  host TEXT NOT NULL,
  service TEXT NOT NULL,
  address TEXT NOT NULL,
  port INTEGER NOT NULL,
  name TEXT NOT NULL,
  value TEXT
) STRICT;

CREATE INDEX annotation_message_id ON annotation (message_id);
