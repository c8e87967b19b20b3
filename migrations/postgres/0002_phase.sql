-- What the run of a task was doing at its last sign of life.
ALTER TABLE inbox_tasks ADD COLUMN phase text NOT NULL DEFAULT '';
