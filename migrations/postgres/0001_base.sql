-- Base schema. Columns of pulse_sessions and pulse_iterations carry the
-- protocol's names and types: people write monitoring SQL against them.

CREATE TABLE projects (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    path        text NOT NULL,
    base_branch text NOT NULL DEFAULT '',
    agent       text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL
);

CREATE TABLE operators (
    id         uuid PRIMARY KEY,
    platform   text NOT NULL,
    user_id    text NOT NULL,
    name       text NOT NULL DEFAULT '',
    role       text NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (platform, user_id)
);

CREATE TABLE pairing_codes (
    hash       text PRIMARY KEY,
    role       text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE TABLE pairing_failures (
    platform text NOT NULL,
    user_id  text NOT NULL,
    at       timestamptz NOT NULL
);
CREATE INDEX pairing_failures_sender ON pairing_failures (platform, user_id, at);

CREATE TABLE settings (
    key        text PRIMARY KEY,
    value      text NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE daemons (
    id      text PRIMARY KEY,
    host    text NOT NULL DEFAULT '',
    version text NOT NULL DEFAULT '',
    slots   int NOT NULL DEFAULT 0,
    agents  jsonb NOT NULL DEFAULT '[]',
    seen_at timestamptz NOT NULL
);

CREATE TABLE inbound_updates (
    id          uuid PRIMARY KEY,
    platform    text NOT NULL,
    source      text NOT NULL,
    update_id   text NOT NULL,
    position    bigint NOT NULL,
    payload     bytea NOT NULL,
    received_at timestamptz NOT NULL,
    handled_at  timestamptz,
    failures    int NOT NULL DEFAULT 0,
    retry_at    timestamptz,
    last_error  text NOT NULL DEFAULT '',
    UNIQUE (source, update_id)
);
CREATE INDEX inbound_updates_pending ON inbound_updates (source, position) WHERE handled_at IS NULL;

-- offset is a reserved word; what a source resumes from is opaque here.
CREATE TABLE inbound_offsets (
    source     text PRIMARY KEY,
    resume     text NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE pulse_sessions (
    id                uuid PRIMARY KEY,
    project_id        uuid REFERENCES projects (id),
    project_name      text NOT NULL,
    goal              text NOT NULL,
    role              text NOT NULL,
    status            text NOT NULL,
    status_reason     text NOT NULL DEFAULT '',
    max_iterations    int NOT NULL,
    current_iteration int NOT NULL DEFAULT 0,
    run               int NOT NULL DEFAULT 1,
    last_signal       text,
    progress_log      jsonb NOT NULL DEFAULT '[]',
    inputs            jsonb NOT NULL DEFAULT '[]',
    anchor_turn_id    text,
    last_turn_id      text,
    context_strategy  text NOT NULL DEFAULT '',
    agent             text NOT NULL DEFAULT '',
    branch_name       text NOT NULL DEFAULT '',
    base_branch       text NOT NULL DEFAULT '',
    head_commit       text NOT NULL DEFAULT '',
    daemon            text NOT NULL DEFAULT '',
    created_by        text NOT NULL,
    created_by_id     text,
    pause_requested   boolean NOT NULL DEFAULT false,
    chat_id           text NOT NULL DEFAULT '',
    chat_thread_id    text NOT NULL DEFAULT '',
    phone_number      text NOT NULL DEFAULT '',
    discord_thread_id text NOT NULL DEFAULT '',
    console_id        text NOT NULL DEFAULT '',
    total_commits     bigint NOT NULL DEFAULT 0,
    total_tokens_used bigint NOT NULL DEFAULT 0,
    total_cost_micros bigint NOT NULL DEFAULT 0,
    due_at            timestamptz,
    step_token        text,
    version           bigint NOT NULL DEFAULT 1,
    event_seq         bigint NOT NULL DEFAULT 0,
    notify_seq        bigint NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    started_at        timestamptz,
    ended_at          timestamptz
);
CREATE INDEX pulse_sessions_due ON pulse_sessions (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX pulse_sessions_news ON pulse_sessions (updated_at) WHERE event_seq > notify_seq;
CREATE INDEX pulse_sessions_newest ON pulse_sessions (created_at DESC, id DESC);
CREATE INDEX pulse_sessions_project ON pulse_sessions (project_id, created_at DESC);
CREATE INDEX pulse_sessions_status ON pulse_sessions (status, updated_at);

CREATE TABLE channels (
    platform   text NOT NULL,
    chat       text NOT NULL,
    thread     text NOT NULL DEFAULT '',
    project_id uuid REFERENCES projects (id),
    session_id uuid REFERENCES pulse_sessions (id),
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (platform, chat, thread)
);

-- attempt is what counts against max_attempts: a task handed back gives its
-- attempt back. claims never falls; stream deltas are numbered within it.
CREATE TABLE inbox_tasks (
    id            uuid PRIMARY KEY,
    kind          text NOT NULL,
    route         text NOT NULL,
    priority      int NOT NULL DEFAULT 0,
    status        text NOT NULL,
    source        text NOT NULL DEFAULT 'pulse',
    session_id    uuid REFERENCES pulse_sessions (id),
    iteration_id  uuid,
    content       text NOT NULL,
    media_context jsonb NOT NULL,
    spec          jsonb NOT NULL,
    attempt       int NOT NULL DEFAULT 0,
    claims        int NOT NULL DEFAULT 0,
    max_attempts  int NOT NULL DEFAULT 0,
    claim_token   text,
    claimed_by    text,
    lease_until   timestamptz,
    last_sign     timestamptz,
    result        jsonb,
    created_at    timestamptz NOT NULL,
    started_at    timestamptz,
    ended_at      timestamptz
);
-- Leads with the route and matches the claim's ORDER BY exactly: a claim costs
-- the same however much work of other routes is queued.
CREATE INDEX inbox_tasks_queue ON inbox_tasks (route, priority DESC, created_at, id) WHERE status = 'queued';
CREATE INDEX inbox_tasks_leases ON inbox_tasks (lease_until) WHERE status IN ('claimed', 'running');
CREATE INDEX inbox_tasks_session ON inbox_tasks (session_id);

CREATE TABLE turns (
    id           uuid PRIMARY KEY,
    session_id   uuid NOT NULL REFERENCES pulse_sessions (id),
    project_id   uuid,
    iteration_id uuid,
    parent_id    uuid,
    role         text NOT NULL,
    status       text NOT NULL,
    depth        int NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    search       tsvector
);
CREATE INDEX turns_session ON turns (session_id, created_at, id);
CREATE INDEX turns_latest ON turns (project_id, created_at DESC, id DESC) WHERE status = 'completed';
CREATE INDEX turns_search ON turns USING gin (search) WHERE status = 'completed';

CREATE TABLE turn_messages (
    turn_id uuid NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq     int NOT NULL,
    text    text NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (turn_id, seq)
);

CREATE TABLE turn_thoughts (
    turn_id uuid NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    seq     int NOT NULL,
    text    text NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (turn_id, seq)
);

CREATE TABLE turn_tools (
    turn_id  uuid NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    call_id  text NOT NULL,
    seq      int NOT NULL,
    name     text NOT NULL,
    summary  text NOT NULL DEFAULT '',
    input    text NOT NULL DEFAULT '',
    output   text NOT NULL DEFAULT '',
    status   text NOT NULL,
    at       timestamptz NOT NULL,
    ended_at timestamptz,
    PRIMARY KEY (turn_id, call_id)
);

CREATE TABLE slices (
    id         text PRIMARY KEY,
    turn_ids   text[] NOT NULL,
    node_count int NOT NULL,
    tokens     int NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE pulse_iterations (
    id                   uuid PRIMARY KEY,
    session_id           uuid NOT NULL REFERENCES pulse_sessions (id),
    iteration_number     int NOT NULL,
    attempt              int NOT NULL DEFAULT 1,
    run                  int NOT NULL DEFAULT 1,
    inbox_task_id        uuid REFERENCES inbox_tasks (id),
    task_content         text NOT NULL,
    status               text NOT NULL,
    signal               text,
    signal_claimed       text,
    signal_reason        text NOT NULL DEFAULT '',
    signal_inferred      boolean NOT NULL DEFAULT false,
    output_summary       text NOT NULL DEFAULT '',
    output_full          text NOT NULL DEFAULT '',
    commit_hash          text,
    commits              int NOT NULL DEFAULT 0,
    files_changed        text[] NOT NULL DEFAULT '{}',
    anchor_turn_id       text,
    anchor_strategy      text,
    anchor_resolution_ms double precision NOT NULL DEFAULT 0,
    salience             double precision NOT NULL DEFAULT 0,
    depth                int NOT NULL DEFAULT 0,
    anchor_note          text NOT NULL DEFAULT '',
    anchor_found         boolean NOT NULL DEFAULT false,
    anchor_hint_next     text,
    anchor_hint_why      text NOT NULL DEFAULT '',
    context_tokens       int NOT NULL DEFAULT 0,
    slice_id             text,
    turn_id              uuid,
    input_tokens         bigint NOT NULL DEFAULT 0,
    output_tokens        bigint NOT NULL DEFAULT 0,
    cache_read_tokens    bigint NOT NULL DEFAULT 0,
    cache_write_tokens   bigint NOT NULL DEFAULT 0,
    cost_micros          bigint NOT NULL DEFAULT 0,
    error                text NOT NULL DEFAULT '',
    created_at           timestamptz NOT NULL,
    started_at           timestamptz,
    ended_at             timestamptz,
    UNIQUE (session_id, run, iteration_number, attempt)
);

CREATE TABLE gates (
    id           uuid PRIMARY KEY,
    session_id   uuid NOT NULL REFERENCES pulse_sessions (id),
    iteration_id uuid,
    kind         text NOT NULL,
    prompt       text NOT NULL,
    options      jsonb NOT NULL DEFAULT '[]',
    status       text NOT NULL,
    choice       text NOT NULL DEFAULT '',
    text         text NOT NULL DEFAULT '',
    decided_by   text,
    decided_name text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    decided_at   timestamptz
);
CREATE INDEX gates_open ON gates (session_id, created_at DESC) WHERE status = 'open';

CREATE TABLE events (
    session_id uuid NOT NULL REFERENCES pulse_sessions (id),
    seq        bigint NOT NULL,
    type       text NOT NULL,
    turn_id    uuid,
    at         timestamptz NOT NULL,
    data       jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (session_id, seq)
);

-- Text on its way. Kept until its turn is over and read, then purged.
CREATE TABLE stream_deltas (
    session_id uuid NOT NULL,
    task_id    uuid NOT NULL,
    attempt    int NOT NULL,
    n          bigint NOT NULL,
    turn_id    uuid,
    type       text NOT NULL,
    text       text NOT NULL,
    at         timestamptz NOT NULL,
    PRIMARY KEY (session_id, task_id, attempt, n)
);
CREATE INDEX stream_deltas_age ON stream_deltas (at);

CREATE TABLE notifications (
    id          uuid PRIMARY KEY,
    platform    text NOT NULL,
    chat        text NOT NULL,
    thread      text NOT NULL DEFAULT '',
    slot        text NOT NULL,
    editable    boolean NOT NULL DEFAULT false,
    kind        text NOT NULL,
    priority    int NOT NULL,
    session_id  uuid REFERENCES pulse_sessions (id),
    gate_id     uuid,
    reply_to    text NOT NULL DEFAULT '',
    silent      boolean NOT NULL DEFAULT false,
    body        jsonb NOT NULL,
    revision    int NOT NULL DEFAULT 1,
    status      text NOT NULL,
    external_id text,
    attempts    int NOT NULL DEFAULT 0,
    next_at     timestamptz,
    lease_until timestamptz,
    last_error  text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL,
    sent_at     timestamptz,
    UNIQUE (platform, chat, thread, slot)
);
CREATE INDEX notifications_due ON notifications (next_at) WHERE status = 'queued';
CREATE INDEX notifications_sending ON notifications (platform, chat) WHERE status = 'sending';
CREATE INDEX notifications_external ON notifications (platform, chat, external_id) WHERE external_id IS NOT NULL;

-- Each row holds the hash of the one before it; audit_head is the last link,
-- and the lock that makes writers queue.
CREATE TABLE audit (
    seq       bigint PRIMARY KEY,
    at        timestamptz NOT NULL,
    operator  text NOT NULL,
    name      text NOT NULL,
    action    text NOT NULL,
    subject   text NOT NULL,
    detail    text NOT NULL,
    prev_hash text NOT NULL,
    hash      text NOT NULL
);
CREATE TABLE audit_head (
    id   int PRIMARY KEY CHECK (id = 1),
    seq  bigint NOT NULL,
    hash text NOT NULL
);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');
