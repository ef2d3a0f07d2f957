-- One raw text per class, kept only when the user asks for it (--keep-text): it may hold private data.
ALTER TABLE class ADD COLUMN example TEXT NOT NULL DEFAULT '';
