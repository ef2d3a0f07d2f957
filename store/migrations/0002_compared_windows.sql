-- Both sides of a compared window, so that a reader can draw tap and log like with like: tap_* count only the calls that
-- the log can have too (the database's log holds statements only). left_out: '' compared, else why it was not.
ALTER TABLE event_load ADD COLUMN tap_node INTEGER NOT NULL DEFAULT -1;
ALTER TABLE event_load ADD COLUMN tap_load REAL;
ALTER TABLE event_load ADD COLUMN tap_max INTEGER;
ALTER TABLE event_load ADD COLUMN tap_arrivals INTEGER;
ALTER TABLE event_load ADD COLUMN tap_completions INTEGER;
ALTER TABLE event_load ADD COLUMN left_out TEXT NOT NULL DEFAULT '';
