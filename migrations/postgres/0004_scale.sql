-- Every list and every question a person asks stays as quick with a million sessions as with ten, and what is over is found
-- for removal without reading what is not.
CREATE INDEX pulse_sessions_suffix ON pulse_sessions (right(CAST(id AS text), 8));
CREATE INDEX pulse_sessions_ended ON pulse_sessions (ended_at, id) WHERE ended_at IS NOT NULL;
-- A list of sessions is merged from one piece a status, each in the order of the list. Every index costs each change of a session.
DROP INDEX pulse_sessions_newest;
CREATE INDEX pulse_sessions_state ON pulse_sessions (status, created_at DESC, id DESC);
DROP INDEX pulse_sessions_project;
CREATE INDEX pulse_sessions_project ON pulse_sessions (project_id, status, created_at DESC, id DESC);
CREATE INDEX pulse_sessions_chat ON pulse_sessions (chat_id, chat_thread_id, status, created_at DESC, id DESC) WHERE chat_id <> '';
CREATE INDEX pulse_sessions_phone ON pulse_sessions (phone_number, status, created_at DESC, id DESC) WHERE phone_number <> '';
CREATE INDEX pulse_sessions_discord ON pulse_sessions (discord_thread_id, status, created_at DESC, id DESC) WHERE discord_thread_id <> '';
CREATE INDEX pulse_sessions_console ON pulse_sessions (console_id, status, created_at DESC, id DESC) WHERE console_id <> '';

CREATE INDEX inbox_tasks_dead ON inbox_tasks (ended_at) WHERE status = 'dead';
CREATE INDEX notifications_dead ON notifications (created_at) WHERE status = 'dead';
CREATE INDEX notifications_session ON notifications (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX notifications_alone ON notifications (created_at) WHERE session_id IS NULL;
CREATE INDEX inbound_updates_handled ON inbound_updates (handled_at) WHERE handled_at IS NOT NULL;
