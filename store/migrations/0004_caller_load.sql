-- The same queue length by the log of the tier's caller (downstream sending to receiving); NULL where it keeps none.
ALTER TABLE event_load ADD COLUMN caller_load REAL;
