-- The first message of each chat is found without reading those behind it.
CREATE INDEX notifications_heads ON notifications (platform, chat, priority DESC, created_at, id) WHERE status = 'queued';
