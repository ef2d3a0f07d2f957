-- When the client gave up a call that has no answer (RST_STREAM in HTTP/2): it is in the queue length until then.
ALTER TABLE call ADD COLUMN gone_ns INTEGER NOT NULL DEFAULT -1;
