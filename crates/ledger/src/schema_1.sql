-- The log. A row is never changed.
CREATE TABLE events (
    seq      INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    body     BLOB    NOT NULL,
    previous BLOB    NOT NULL,
    hash     BLOB    NOT NULL
);

-- Which release wrote from which record on.
CREATE TABLE releases (
    first_seq INTEGER PRIMARY KEY,
    release   TEXT NOT NULL
);

-- Beside the log. An erased document keeps its row with body NULL. With rowid: bodies may be large.
CREATE TABLE documents (
    hash       BLOB PRIMARY KEY,
    salt       BLOB    NOT NULL,
    body       BLOB,
    written_ms INTEGER NOT NULL
);

-- Query tables: made from the log by the projection, in the same transaction.
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    workspace    INTEGER NOT NULL,
    cluster      INTEGER NOT NULL,
    cluster_name TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    name_key     TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    created      INTEGER NOT NULL,
    started      INTEGER,
    ended        INTEGER,
    attempt      INTEGER NOT NULL DEFAULT 0,
    node         INTEGER,
    archived     INTEGER NOT NULL DEFAULT 0,
    document     BLOB    NOT NULL,
    meta         BLOB    NOT NULL,
    failure      TEXT,
    exit         TEXT,
    facts        TEXT,
    reason       TEXT
);
CREATE UNIQUE INDEX jobs_by_name ON jobs (workspace, name_key);
CREATE INDEX jobs_by_workspace ON jobs (workspace, id);
CREATE INDEX jobs_by_cluster ON jobs (cluster, id);
CREATE INDEX jobs_archived ON jobs (workspace, id) WHERE archived = 1;

-- Also nodes that are gone. `busy` counts attempts; a ready node is idle at zero and running above.
CREATE TABLE nodes (
    id              INTEGER PRIMARY KEY,
    cluster         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    busy            INTEGER NOT NULL DEFAULT 0,
    since           INTEGER NOT NULL,
    reason          TEXT    NOT NULL,
    nominal_cpus    INTEGER NOT NULL,
    nominal_memory  INTEGER NOT NULL,
    nominal_gpus    INTEGER NOT NULL,
    actual_cpus     INTEGER,
    actual_memory   INTEGER,
    actual_gpus     INTEGER,
    isolation       TEXT,
    created         INTEGER NOT NULL,
    gone            INTEGER
);
CREATE INDEX nodes_by_cluster ON nodes (cluster, id);
CREATE INDEX nodes_present ON nodes (cluster, id) WHERE gone IS NULL;

-- Also clusters that are deleted.
CREATE TABLE clusters (
    id        INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    name_key  TEXT    NOT NULL,
    location  TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    deleted   INTEGER
);
CREATE INDEX clusters_by_name ON clusters (workspace, name_key, id);

-- `id` is the number of the record that first put it: the order of creation.
CREATE TABLE assets (
    id        INTEGER PRIMARY KEY,
    workspace INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    version   TEXT    NOT NULL,
    document  BLOB    NOT NULL,
    content   TEXT,
    created   INTEGER NOT NULL
);
CREATE UNIQUE INDEX assets_by_version ON assets (workspace, kind, name, version);
CREATE INDEX assets_by_name ON assets (workspace, kind, name, id);
CREATE INDEX assets_by_content ON assets (workspace, kind, content, id) WHERE content IS NOT NULL;
