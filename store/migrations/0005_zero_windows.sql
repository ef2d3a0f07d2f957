-- Segments that announce a receive window of zero, by direction: the sender of such a segment reads too slowly.
ALTER TABLE connection ADD COLUMN zero_windows_to_server INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connection ADD COLUMN zero_windows_to_client INTEGER NOT NULL DEFAULT 0;
