-- Length of the response of each call: what the matcher weighs by it can be weighed again (self-check).
ALTER TABLE call ADD COLUMN response_bytes INTEGER NOT NULL DEFAULT -1;
