-- What is paid for beside nodes: storage kept from one look to the next, and bytes between locations.
CREATE TABLE charges (
  id INTEGER PRIMARY KEY,
  workspace INTEGER NOT NULL,
  kind TEXT NOT NULL,
  from_ms INTEGER NOT NULL,
  -- The same for what has no length.
  to_ms INTEGER NOT NULL,
  micro_usd INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  cluster INTEGER,
  job INTEGER,
  owner TEXT,
  -- The job's tags as they were.
  meta BLOB
);
CREATE INDEX charges_by_time ON charges (workspace, to_ms);
