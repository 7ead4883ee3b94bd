-- What nodes cost, by whom and for what: one row for each part of each slice of a node's time.
CREATE TABLE costs (
  id INTEGER PRIMARY KEY,
  node INTEGER NOT NULL,
  cluster INTEGER NOT NULL,
  workspace INTEGER NOT NULL,
  from_ms INTEGER NOT NULL,
  to_ms INTEGER NOT NULL,
  micro_usd INTEGER NOT NULL,
  cause TEXT NOT NULL,
  -- Nobody's where the cluster keeps the node by its minimum.
  job INTEGER,
  attempt INTEGER,
  owner TEXT,
  -- The job's tags as they were.
  meta BLOB
);
CREATE INDEX costs_by_time ON costs (workspace, to_ms);
CREATE INDEX costs_by_attempt ON costs (job, attempt) WHERE job IS NOT NULL;

-- Where in the log each accepted definition of a cluster is.
CREATE TABLE revisions (
  id INTEGER PRIMARY KEY,
  cluster INTEGER NOT NULL,
  revision INTEGER NOT NULL
);
CREATE UNIQUE INDEX revisions_by_cluster ON revisions (cluster, revision);
