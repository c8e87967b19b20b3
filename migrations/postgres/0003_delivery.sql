-- Which claim is sending a message: a sender that lost its claim stores nothing any more.
ALTER TABLE notifications ADD COLUMN claim_token text;

-- The messages after the first that one notification became.
CREATE TABLE notification_parts (
    notification_id uuid NOT NULL REFERENCES notifications (id) ON DELETE CASCADE,
    part            int NOT NULL,
    platform        text NOT NULL,
    chat            text NOT NULL,
    external_id     text NOT NULL,
    PRIMARY KEY (notification_id, part)
);
CREATE INDEX notification_parts_external ON notification_parts (platform, chat, external_id);

-- Chats nothing may be sent to: until a time the platform named, or (NULL)
-- until somebody writes there. With edits, only edits are kept back.
CREATE TABLE chat_holds (
    platform text NOT NULL,
    chat     text NOT NULL,
    edits    boolean NOT NULL DEFAULT false,
    until    timestamptz,
    reason   text NOT NULL DEFAULT '',
    since    timestamptz NOT NULL,
    PRIMARY KEY (platform, chat, edits)
);

-- An update that holds keeps the later ones of its chat waiting for it, each
-- behind the one before.
ALTER TABLE inbound_updates ADD COLUMN holds boolean NOT NULL DEFAULT false;
ALTER TABLE inbound_updates ADD COLUMN waits_for uuid;
CREATE INDEX inbound_updates_holding ON inbound_updates (source, position) WHERE handled_at IS NULL AND (holds OR waits_for IS NOT NULL);
