-- Base schema, the same tables as on PostgreSQL. Every time is an integer of
-- microseconds since 1970 in UTC; JSON and lists are text.

CREATE TABLE projects (
    id          TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    path        TEXT NOT NULL,
    base_branch TEXT NOT NULL DEFAULT '',
    agent       TEXT NOT NULL DEFAULT '',
    created_at  INTEGER NOT NULL
);

CREATE TABLE operators (
    id         TEXT NOT NULL PRIMARY KEY,
    platform   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL DEFAULT '',
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (platform, user_id)
);

CREATE TABLE pairing_codes (
    hash       TEXT NOT NULL PRIMARY KEY,
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER
);

CREATE TABLE pairing_failures (
    platform TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    at       INTEGER NOT NULL
);
CREATE INDEX pairing_failures_sender ON pairing_failures (platform, user_id, at);

CREATE TABLE settings (
    key        TEXT NOT NULL PRIMARY KEY,
    value      TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE daemons (
    id      TEXT NOT NULL PRIMARY KEY,
    host    TEXT NOT NULL DEFAULT '',
    version TEXT NOT NULL DEFAULT '',
    slots   INTEGER NOT NULL DEFAULT 0,
    agents  TEXT NOT NULL DEFAULT '[]',
    seen_at INTEGER NOT NULL
);

CREATE TABLE inbound_updates (
    id          TEXT NOT NULL PRIMARY KEY,
    platform    TEXT NOT NULL,
    source      TEXT NOT NULL,
    update_id   TEXT NOT NULL,
    position    INTEGER NOT NULL,
    payload     BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    handled_at  INTEGER,
    failures    INTEGER NOT NULL DEFAULT 0,
    retry_at    INTEGER,
    last_error  TEXT NOT NULL DEFAULT '',
    UNIQUE (source, update_id)
);
CREATE INDEX inbound_updates_pending ON inbound_updates (source, position) WHERE handled_at IS NULL;

-- offset is a reserved word; what a source resumes from is opaque here.
CREATE TABLE inbound_offsets (
    source     TEXT NOT NULL PRIMARY KEY,
    resume     TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE pulse_sessions (
    id                TEXT NOT NULL PRIMARY KEY,
    project_id        TEXT REFERENCES projects (id),
    project_name      TEXT NOT NULL,
    goal              TEXT NOT NULL,
    role              TEXT NOT NULL,
    status            TEXT NOT NULL,
    status_reason     TEXT NOT NULL DEFAULT '',
    max_iterations    INTEGER NOT NULL,
    current_iteration INTEGER NOT NULL DEFAULT 0,
    run               INTEGER NOT NULL DEFAULT 1,
    last_signal       TEXT,
    progress_log      TEXT NOT NULL DEFAULT '[]',
    inputs            TEXT NOT NULL DEFAULT '[]',
    anchor_turn_id    TEXT,
    last_turn_id      TEXT,
    context_strategy  TEXT NOT NULL DEFAULT '',
    agent             TEXT NOT NULL DEFAULT '',
    branch_name       TEXT NOT NULL DEFAULT '',
    base_branch       TEXT NOT NULL DEFAULT '',
    head_commit       TEXT NOT NULL DEFAULT '',
    daemon            TEXT NOT NULL DEFAULT '',
    created_by        TEXT NOT NULL,
    created_by_id     TEXT,
    pause_requested   BOOLEAN NOT NULL DEFAULT false,
    chat_id           TEXT NOT NULL DEFAULT '',
    chat_thread_id    TEXT NOT NULL DEFAULT '',
    phone_number      TEXT NOT NULL DEFAULT '',
    discord_thread_id TEXT NOT NULL DEFAULT '',
    console_id        TEXT NOT NULL DEFAULT '',
    total_commits     INTEGER NOT NULL DEFAULT 0,
    total_tokens_used INTEGER NOT NULL DEFAULT 0,
    total_cost_micros INTEGER NOT NULL DEFAULT 0,
    due_at            INTEGER,
    step_token        TEXT,
    version           INTEGER NOT NULL DEFAULT 1,
    event_seq         INTEGER NOT NULL DEFAULT 0,
    notify_seq        INTEGER NOT NULL DEFAULT 0,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    started_at        INTEGER,
    ended_at          INTEGER
);
CREATE INDEX pulse_sessions_due ON pulse_sessions (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX pulse_sessions_news ON pulse_sessions (updated_at) WHERE event_seq > notify_seq;
CREATE INDEX pulse_sessions_newest ON pulse_sessions (created_at DESC, id DESC);
CREATE INDEX pulse_sessions_project ON pulse_sessions (project_id, created_at DESC);
CREATE INDEX pulse_sessions_status ON pulse_sessions (status, updated_at);

CREATE TABLE channels (
    platform   TEXT NOT NULL,
    chat       TEXT NOT NULL,
    thread     TEXT NOT NULL DEFAULT '',
    project_id TEXT REFERENCES projects (id),
    session_id TEXT REFERENCES pulse_sessions (id),
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (platform, chat, thread)
);

-- attempt is what counts against max_attempts: a task handed back gives its
-- attempt back. claims never falls; stream deltas are numbered within it.
CREATE TABLE inbox_tasks (
    id            TEXT NOT NULL PRIMARY KEY,
    kind          TEXT NOT NULL,
    route         TEXT NOT NULL,
    priority      INTEGER NOT NULL DEFAULT 0,
    status        TEXT NOT NULL,
    source        TEXT NOT NULL DEFAULT 'pulse',
    session_id    TEXT REFERENCES pulse_sessions (id),
    iteration_id  TEXT,
    content       TEXT NOT NULL,
    media_context TEXT NOT NULL,
    spec          TEXT NOT NULL,
    attempt       INTEGER NOT NULL DEFAULT 0,
    claims        INTEGER NOT NULL DEFAULT 0,
    max_attempts  INTEGER NOT NULL DEFAULT 0,
    claim_token   TEXT,
    claimed_by    TEXT,
    lease_until   INTEGER,
    last_sign     INTEGER,
    result        TEXT,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER
);
-- Leads with the route and matches the claim's ORDER BY exactly: a claim costs
-- the same however much work of other routes is queued.
CREATE INDEX inbox_tasks_queue ON inbox_tasks (route, priority DESC, created_at, id) WHERE status = 'queued';
CREATE INDEX inbox_tasks_leases ON inbox_tasks (lease_until) WHERE status IN ('claimed', 'running');
CREATE INDEX inbox_tasks_session ON inbox_tasks (session_id);

-- rid is what the text index points to; an implicit rowid may change on VACUUM.
CREATE TABLE turns (
    rid          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    session_id   TEXT NOT NULL REFERENCES pulse_sessions (id),
    project_id   TEXT,
    iteration_id TEXT,
    parent_id    TEXT,
    role         TEXT NOT NULL,
    status       TEXT NOT NULL,
    depth        INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    ended_at     INTEGER
);
CREATE INDEX turns_session ON turns (session_id, created_at, id);
CREATE INDEX turns_latest ON turns (project_id, created_at DESC, id DESC) WHERE status = 'completed';
CREATE VIRTUAL TABLE turns_fts USING fts5 (text, content = '', contentless_delete = 1, tokenize = 'porter unicode61');

CREATE TABLE turn_messages (
    turn_id TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    text    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (turn_id, seq)
);

CREATE TABLE turn_thoughts (
    turn_id TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    text    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (turn_id, seq)
);

CREATE TABLE turn_tools (
    turn_id  TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    call_id  TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    name     TEXT NOT NULL,
    summary  TEXT NOT NULL DEFAULT '',
    input    TEXT NOT NULL DEFAULT '',
    output   TEXT NOT NULL DEFAULT '',
    status   TEXT NOT NULL,
    at       INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (turn_id, call_id)
);

CREATE TABLE slices (
    id         TEXT NOT NULL PRIMARY KEY,
    turn_ids   TEXT NOT NULL,
    node_count INTEGER NOT NULL,
    tokens     INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE pulse_iterations (
    id                   TEXT NOT NULL PRIMARY KEY,
    session_id           TEXT NOT NULL REFERENCES pulse_sessions (id),
    iteration_number     INTEGER NOT NULL,
    attempt              INTEGER NOT NULL DEFAULT 1,
    run                  INTEGER NOT NULL DEFAULT 1,
    inbox_task_id        TEXT REFERENCES inbox_tasks (id),
    task_content         TEXT NOT NULL,
    status               TEXT NOT NULL,
    signal               TEXT,
    signal_claimed       TEXT,
    signal_reason        TEXT NOT NULL DEFAULT '',
    signal_inferred      BOOLEAN NOT NULL DEFAULT false,
    output_summary       TEXT NOT NULL DEFAULT '',
    output_full          TEXT NOT NULL DEFAULT '',
    commit_hash          TEXT,
    commits              INTEGER NOT NULL DEFAULT 0,
    files_changed        TEXT NOT NULL DEFAULT '[]',
    anchor_turn_id       TEXT,
    anchor_strategy      TEXT,
    anchor_resolution_ms REAL NOT NULL DEFAULT 0,
    salience             REAL NOT NULL DEFAULT 0,
    depth                INTEGER NOT NULL DEFAULT 0,
    anchor_note          TEXT NOT NULL DEFAULT '',
    anchor_found         BOOLEAN NOT NULL DEFAULT false,
    anchor_hint_next     TEXT,
    anchor_hint_why      TEXT NOT NULL DEFAULT '',
    context_tokens       INTEGER NOT NULL DEFAULT 0,
    slice_id             TEXT,
    turn_id              TEXT,
    input_tokens         INTEGER NOT NULL DEFAULT 0,
    output_tokens        INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens    INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_micros          INTEGER NOT NULL DEFAULT 0,
    error                TEXT NOT NULL DEFAULT '',
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    ended_at             INTEGER,
    UNIQUE (session_id, run, iteration_number, attempt)
);

CREATE TABLE gates (
    id           TEXT NOT NULL PRIMARY KEY,
    session_id   TEXT NOT NULL REFERENCES pulse_sessions (id),
    iteration_id TEXT,
    kind         TEXT NOT NULL,
    prompt       TEXT NOT NULL,
    options      TEXT NOT NULL DEFAULT '[]',
    status       TEXT NOT NULL,
    choice       TEXT NOT NULL DEFAULT '',
    text         TEXT NOT NULL DEFAULT '',
    decided_by   TEXT,
    decided_name TEXT NOT NULL DEFAULT '',
    created_at   INTEGER NOT NULL,
    decided_at   INTEGER
);
CREATE INDEX gates_open ON gates (session_id, created_at DESC) WHERE status = 'open';

CREATE TABLE events (
    session_id TEXT NOT NULL REFERENCES pulse_sessions (id),
    seq        INTEGER NOT NULL,
    type       TEXT NOT NULL,
    turn_id    TEXT,
    at         INTEGER NOT NULL,
    data       TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (session_id, seq)
);

-- Text on its way. Kept until its turn is over and read, then purged.
CREATE TABLE stream_deltas (
    session_id TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    n          INTEGER NOT NULL,
    turn_id    TEXT,
    type       TEXT NOT NULL,
    text       TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (session_id, task_id, attempt, n)
);
CREATE INDEX stream_deltas_age ON stream_deltas (at);

CREATE TABLE notifications (
    id          TEXT NOT NULL PRIMARY KEY,
    platform    TEXT NOT NULL,
    chat        TEXT NOT NULL,
    thread      TEXT NOT NULL DEFAULT '',
    slot        TEXT NOT NULL,
    editable    BOOLEAN NOT NULL DEFAULT false,
    kind        TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    session_id  TEXT REFERENCES pulse_sessions (id),
    gate_id     TEXT,
    reply_to    TEXT NOT NULL DEFAULT '',
    silent      BOOLEAN NOT NULL DEFAULT false,
    body        TEXT NOT NULL,
    revision    INTEGER NOT NULL DEFAULT 1,
    status      TEXT NOT NULL,
    external_id TEXT,
    attempts    INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER,
    lease_until INTEGER,
    last_error  TEXT NOT NULL DEFAULT '',
    created_at  INTEGER NOT NULL,
    sent_at     INTEGER,
    UNIQUE (platform, chat, thread, slot)
);
CREATE INDEX notifications_due ON notifications (next_at) WHERE status = 'queued';
CREATE INDEX notifications_sending ON notifications (platform, chat) WHERE status = 'sending';
CREATE INDEX notifications_external ON notifications (platform, chat, external_id) WHERE external_id IS NOT NULL;

-- Each row holds the hash of the one before it; audit_head is the last link,
-- and the lock that makes writers queue.
CREATE TABLE audit (
    seq       INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    operator  TEXT NOT NULL,
    name      TEXT NOT NULL,
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    detail    TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash      TEXT NOT NULL
);
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');
