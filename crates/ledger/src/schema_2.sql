-- Jobs made of jobs, jobs within them, and jobs on several nodes. A family has no cluster (0).
ALTER TABLE jobs ADD COLUMN family INTEGER;
ALTER TABLE jobs ADD COLUMN is_family INTEGER NOT NULL DEFAULT 0;
-- The nodes of the last attempt by rank, as JSON, where there are several.
ALTER TABLE jobs ADD COLUMN ranks TEXT;
CREATE INDEX jobs_by_family ON jobs (family, id) WHERE family IS NOT NULL;
-- What names a step's work, so that a later one with the same name can take its outputs.
ALTER TABLE jobs ADD COLUMN work TEXT;
CREATE INDEX jobs_by_work ON jobs (workspace, work, id) WHERE work IS NOT NULL;
