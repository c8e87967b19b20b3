"use strict";
// Texts of agents and people only ever enter as textContent.
const rows = document.getElementById("sessions");
const none = document.getElementById("none");
const link = document.getElementById("link");
const cursors = {};
let known = false;
let pending = 0;

function cell(row, text, name) {
  const td = row.insertCell();
  td.textContent = text;
  if (name) td.className = name;
}

async function refresh() {
  pending = 0;
  const answer = await fetch("/api/pulse?limit=100");
  if (!answer.ok) return;
  const { sessions } = await answer.json();
  rows.replaceChildren();
  for (const s of sessions) {
    const row = rows.insertRow();
    cell(row, s.id.slice(-8));
    cell(row, s.project_name);
    cell(row, s.goal, "goal");
    cell(row, s.status_reason ? s.status + ": " + s.status_reason : s.status);
    cell(row, s.current_iteration + "/" + s.max_iterations);
    cell(row, s.updated_at ? new Date(s.updated_at).toLocaleString() : "");
  }
  none.hidden = sessions.length > 0;
}

function soon() {
  if (!pending) pending = setTimeout(() => refresh().catch(() => {}), 200);
}

function connect(wait) {
  const scheme = location.protocol === "https:" ? "wss://" : "ws://";
  const ws = new WebSocket(scheme + location.host + "/ws");
  ws.onopen = () => {
    link.textContent = "live";
    wait = 500;
    ws.send(JSON.stringify(known ? { type: "subscribe", all: true, sessions: cursors } : { type: "subscribe", all: true }));
    soon();
  };
  ws.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    if (frame.type === "subscribed") {
      known = true;
      Object.assign(cursors, frame.data.cursors);
      return;
    }
    if (frame.sessionId) cursors[frame.sessionId] = frame.seq;
    if (!frame.type.endsWith("_delta")) soon();
  };
  ws.onclose = () => {
    link.textContent = "reconnecting";
    setTimeout(() => connect(Math.min(wait * 2, 10000)), wait);
  };
}

refresh().catch(() => {});
connect(500);
