-- Columns of large tables once more, as arrays: what analyses read, a few bytes a value (tapscope/store/blocks.py).
-- table_name is the table in SQLite, first the id of the block's first row; the other columns say how data is coded.
-- The rows themselves are what counts: whoever changes one drops the blocks of its table.
CREATE TABLE column_block (
  table_name TEXT NOT NULL,
  first INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  name TEXT NOT NULL,
  start INTEGER NOT NULL,
  base INTEGER NOT NULL,
  width INTEGER NOT NULL,
  absent INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (table_name, first, name)
) STRICT;

CREATE TRIGGER call_updated AFTER UPDATE ON call
  BEGIN DELETE FROM column_block WHERE table_name = 'call'; END;
CREATE TRIGGER call_deleted AFTER DELETE ON call
  BEGIN DELETE FROM column_block WHERE table_name = 'call'; END;
CREATE TRIGGER link_updated AFTER UPDATE ON link
  BEGIN DELETE FROM column_block WHERE table_name = 'link'; END;
CREATE TRIGGER link_deleted AFTER DELETE ON link
  BEGIN DELETE FROM column_block WHERE table_name = 'link'; END;
CREATE TRIGGER trace_updated AFTER UPDATE ON trace
  BEGIN DELETE FROM column_block WHERE table_name = 'trace'; END;
CREATE TRIGGER trace_deleted AFTER DELETE ON trace
  BEGIN DELETE FROM column_block WHERE table_name = 'trace'; END;
CREATE TRIGGER trace_call_updated AFTER UPDATE ON trace_call
  BEGIN DELETE FROM column_block WHERE table_name = 'trace_call'; END;
CREATE TRIGGER trace_call_deleted AFTER DELETE ON trace_call
  BEGIN DELETE FROM column_block WHERE table_name = 'trace_call'; END;
