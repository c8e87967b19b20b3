package dbtest

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pulseloop/pulse"
)

func testWords(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"best match first":                 searchOrder,
		"a query is only words":            hostileQueries,
		"search stays in its project":      searchProject,
		"what is not over is not found":    searchUnfinished,
		"huge texts":                       hugeTexts,
		"broken texts":                     brokenTexts,
		"ids and values that cannot be":    badValues,
		"ancestors, nearest first":         ancestors,
		"turns in order":                   turnsInOrder,
		"updates in order, each once":      inbox,
		"an update that holds others":      holding,
		"ids that begin anew":              recycled,
		"sessions by state, place and end": findingSessions,
	})
}

// say stores a completed turn of a person.
func (f *fixture) say(s pulse.Session, parent pulse.TurnID, words ...string) pulse.TurnID {
	f.t.Helper()
	f.clock.Advance(time.Millisecond)
	now := f.clock.Now()
	d := pulse.TurnDetail{Turn: pulse.Turn{ID: pulse.TurnID(f.id()), SessionID: s.ID, ProjectID: s.ProjectID, ParentID: parent, Role: pulse.TurnUser,
		Status: pulse.TurnCompleted, CreatedAt: now, EndedAt: now}}
	for i, w := range words {
		d.Messages = append(d.Messages, pulse.TurnMessage{TurnID: d.Turn.ID, Seq: i + 1, Text: w, At: now})
	}
	f.apply(pulse.Guard{}, pulse.Change{Turns: []pulse.TurnDetail{d}})
	return d.Turn.ID
}

func (f *fixture) search(query string, limit int) []pulse.TurnHit {
	f.t.Helper()
	hits, err := f.SearchTurns(f.ctx, f.project.ID, query, limit)
	if err != nil {
		f.t.Fatalf("search %q: %v", query, err)
	}
	return hits
}

func searchOrder(f *fixture) {
	s := f.addSession()
	both := f.say(s, "", "The health endpoint answers 200.", "It is tested.")
	one := f.say(s, "", "The endpoint of the trip is Rome, and we talked for a long time about trains and other things that have nothing to do with it.")
	f.say(s, "", "Bananas are yellow.")
	hits := f.search("add a health endpoint", 10)
	equal(f.t, len(hits), 2, "hits")
	equal(f.t, hits[0].Turn.ID, both, "first")
	equal(f.t, hits[1].Turn.ID, one, "second")
	equal(f.t, hits[0].Turn.Text, "The health endpoint answers 200.\nIt is tested.", "text")
	for _, h := range hits {
		equal(f.t, h.Similarity > 0 && h.Similarity <= 1, true, "similarity within bounds")
	}
	equal(f.t, hits[0].Similarity > hits[1].Similarity, true, "similarity falls")
	equal(f.t, f.search("HEALTH testing", 1)[0].Turn.ID, both, "case and stem")
	equal(f.t, len(f.search("health endpoint", 1)), 1, "limit")
	equal(f.t, len(f.search("unheard", 5)), 0, "no match")
}

func hostileQueries(f *fixture) {
	s := f.addSession()
	f.say(s, "", "drop table near the column text and quotes")
	for _, q := range []string{"", "   ", `"`, `""" OR "`, "text:drop", "near(drop table, 2)", "NOT", "AND OR NOT NEAR", "* ^ drop*", "-drop", "{a} : b", "drop' | !table & <-> (",
		"'; DROP TABLE turns; --", `\'`, "a\x00b \xff\xfe drop", strings.Repeat("word ", 5000), strings.Repeat("x", 100_000), "?1 $1 :drop @drop ?", "日本語 drop", "drop:*A", "🙂🙂"} {
		hits, err := f.SearchTurns(f.ctx, f.project.ID, q, 5)
		if err != nil {
			f.t.Errorf("query %.40q: %v", q, err)
		}
		if strings.Contains(q, "drop") && len(hits) != 1 {
			f.t.Errorf("query %.40q: %d hits, want the one with the word", q, len(hits))
		}
	}
	_, err := f.SearchTurns(f.ctx, "nonsense", "drop", 5)
	mustBe(f.t, err, nil, "a project of nonsense")
}

func searchProject(f *fixture) {
	mine := f.addSession()
	f.say(mine, "", "secret plan")
	other := f.addProject("other")
	hits, err := f.SearchTurns(f.ctx, other.ID, "secret plan", 5)
	mustBe(f.t, err, nil, "search")
	equal(f.t, len(hits), 0, "hits of another project")
	_, err = f.LatestTurn(f.ctx, other.ID, "")
	mustBe(f.t, err, pulse.ErrNone, "latest turn of another project")
	theirs := mine
	theirs.ProjectID = other.ID
	latest := f.say(mine, "", "the newest")
	f.say(theirs, "", "secret too")
	got, err := f.LatestTurn(f.ctx, f.project.ID, "")
	mustBe(f.t, err, nil, "latest")
	equal(f.t, got.ID, latest, "latest")
	equal(f.t, got.Text, "the newest", "text")
}

func searchUnfinished(f *fixture) {
	_, _, fence := f.started()
	turn := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming, CreatedAt: f.clock.Now()}
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}, Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 1, Text: "half a thought"}}}), nil, "append")
	equal(f.t, len(f.search("thought", 5)), 0, "hits while streaming")
	_, err := f.LatestTurn(f.ctx, f.project.ID, "")
	mustBe(f.t, err, pulse.ErrNone, "latest while streaming")
	turn.Status, turn.EndedAt = pulse.TurnCompleted, f.clock.Now()
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}}), nil, "end")
	equal(f.t, len(f.search("thought", 5)), 1, "hits when it is over")
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Messages: []pulse.TurnMessage{{TurnID: turn.ID, Seq: 2, Text: "postscript"}}}), nil, "a late block")
	equal(f.t, len(f.search("postscript", 5)), 1, "hits of a late block")
	turn.Status = pulse.TurnStreaming
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{turn}}), nil, "an old batch again")
	got, err := f.Turn(f.ctx, turn.ID)
	mustBe(f.t, err, nil, "read")
	equal(f.t, got.Status, pulse.TurnCompleted, "status after an old batch")
}

func hugeTexts(f *fixture) {
	s := f.addSession()
	var words strings.Builder
	for i := 0; words.Len() < 1<<20; i++ {
		words.WriteString(" wörd")
		words.WriteString(label(i))
	}
	huge := "needle" + words.String()
	id := f.say(s, "", huge)
	got, err := f.Turn(f.ctx, id)
	mustBe(f.t, err, nil, "read")
	equal(f.t, got.Text == huge, true, "1 MB of text comes back as it was")
	equal(f.t, len(f.search("needle", 1)), 1, "found by its beginning")
	wide := f.say(s, "", strings.Repeat("語", 400_000)+" end")
	got, err = f.Turn(f.ctx, wide)
	mustBe(f.t, err, nil, "read")
	equal(f.t, len(got.Text), 1_200_004, "bytes of wide text")
	_, _, fence := f.started()
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: huge}), nil, "finish")
	other, _, _ := f.dispatch(f.addSession())
	it, _ := f.task(other.ID)
	it.OutputFull, it.TaskContent = huge, huge
	f.apply(pulse.Guard{}, pulse.Change{Iterations: []pulse.Iteration{it}})
	it, _ = f.task(other.ID)
	equal(f.t, it.OutputFull == huge, true, "1 MB of output")
}

const broken = "a\x00b\xff\xfec 'q' \\ ? \u0000 \u202e"

func brokenTexts(f *fixture) {
	s := f.newSession()
	s.Goal = broken
	s.ProgressLog = []pulse.ProgressEntry{{Summary: broken + ` literal \u0000`, At: f.clock.Now()}}
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &s})
	got := f.session(s.ID)
	clean := "a\uFFFDb\uFFFDc 'q' \\ ? \uFFFD \u202e"
	equal(f.t, got.Goal, clean, "goal")
	equal(f.t, utf8.ValidString(got.ProgressLog[0].Summary), true, "progress is valid")
	equal(f.t, strings.HasSuffix(got.ProgressLog[0].Summary, ` literal \u0000`), true, "an escape written out is text: "+got.ProgressLog[0].Summary)
	id := f.say(got, "", broken)
	turn, err := f.Turn(f.ctx, id)
	mustBe(f.t, err, nil, "turn")
	equal(f.t, turn.Text, clean, "turn")

	_, _, fence := f.started()
	at := pulse.Turn{ID: pulse.TurnID(f.id()), Role: pulse.TurnAssistant, Status: pulse.TurnStreaming}
	mustBe(f.t, f.Append(f.ctx, fence, pulse.StreamBatch{Turns: []pulse.Turn{at},
		Tools:  []pulse.TurnTool{{TurnID: at.ID, CallID: broken, Name: broken, Input: broken, Output: broken, Status: pulse.ToolRunning}},
		Deltas: []pulse.StreamDelta{{N: 1, TurnID: at.ID, Type: pulse.EventMessageDelta, Text: broken}},
		Events: []pulse.Event{{Type: pulse.EventToolStarted, Data: map[string]any{broken: broken}}}}), nil, "append")
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{FinalText: broken, FilesChanged: []string{broken}, Notes: []string{broken}, Error: broken}), nil, "finish")
	f.tell(chat, broken, pulse.NoticeFinal, broken)
	equal(f.t, f.claimNotices(1)[0].Slot, clean, "slot")
	payload := []byte{0, 1, 0xff, '\''}
	_, err = f.Receive(f.ctx, "b\x00t", []pulse.Inbound{{UpdateID: broken, Payload: payload}}, broken)
	mustBe(f.t, err, nil, "receive")
	pending, err := f.PendingInbound(f.ctx, 1)
	mustBe(f.t, err, nil, "pending")
	equal(f.t, string(pending[0].Payload), string(payload), "a payload is bytes")
	mustBe(f.t, f.DeferInbound(f.ctx, pending[0].ID, broken, f.clock.Now()), nil, "defer")
	_, err = f.FindSession(f.ctx, broken)
	mustCode(f.t, err, pulse.CodeNotFound, "find")
}

// badValues are refused, and nothing of them reaches the statement.
func badValues(f *fixture) {
	s := f.addSession()
	evil := `x"))); UPDATE pulse_sessions SET goal = 'taken'; --`
	for what, c := range map[string]pulse.Change{
		"turn of an event":  {Events: []pulse.Event{{SessionID: s.ID, TurnID: pulse.TurnID(evil)}}},
		"id of a gate":      {Gates: []pulse.Gate{{ID: pulse.GateID(evil), SessionID: s.ID, Status: pulse.GateOpen}}},
		"gate of a notice":  {Notices: []pulse.Notice{{Address: chat, GateID: pulse.GateID(evil)}}},
		"cancelled task":    {Cancel: []pulse.TaskID{pulse.TaskID(evil)}},
		"operator":          {Operator: &pulse.Operator{ID: pulse.OperatorID(evil), Platform: "x", UserID: "y"}},
		"a value":           {Events: []pulse.Event{{SessionID: s.ID, Data: map[string]any{"n": math.NaN()}}}},
		"another value":     {Events: []pulse.Event{{SessionID: s.ID, Data: map[string]any{evil: func() {}}}}},
		"session's project": {NewSession: &pulse.Session{ID: pulse.SessionID(f.id()), ProjectID: pulse.ProjectID(evil)}},
	} {
		mustCode(f.t, f.Apply(f.ctx, pulse.Guard{}, c), pulse.CodeInvalid, what)
	}
	mustCode(f.t, f.Apply(f.ctx, pulse.Guard{Inbound: pulse.InboundID(evil)}, pulse.Change{}), pulse.CodeInvalid, "inbound")
	equal(f.t, f.session(s.ID).Goal, s.Goal, "goal")
	_, _, fence := f.started()
	mustBe(f.t, f.Finish(f.ctx, fence, pulse.TaskResult{TurnID: pulse.TurnID(evil)}), nil, "a result names any turn")
}

func ancestors(f *fixture) {
	s := f.addSession()
	root := f.say(s, "", "root")
	mid := f.say(s, root, "mid")
	leaf := f.say(s, mid, "leaf")
	got, err := f.Ancestors(f.ctx, leaf, 10)
	mustBe(f.t, err, nil, "ancestors")
	equal(f.t, len(got), 2, "ancestors")
	equal(f.t, got[0].ID, mid, "nearest")
	equal(f.t, got[0].Depth, 1, "depth")
	equal(f.t, got[1].Text, "root", "root's text")
	got, err = f.Ancestors(f.ctx, leaf, 1)
	mustBe(f.t, err, nil, "ancestors")
	equal(f.t, len(got), 1, "limited")
	for _, none := range []pulse.TurnID{root, pulse.TurnID(f.id()), "nonsense"} {
		got, err = f.Ancestors(f.ctx, none, 5)
		mustBe(f.t, err, nil, "ancestors of a root")
		equal(f.t, len(got), 0, "ancestors of a root")
	}
	other := f.addProject("other")
	elsewhere := s
	elsewhere.ProjectID = other.ID
	stray := f.say(elsewhere, leaf, "grafted on")
	got, err = f.Ancestors(f.ctx, stray, 5)
	mustBe(f.t, err, nil, "ancestors across projects")
	equal(f.t, len(got), 0, "ancestors across projects")
	_, err = f.Turn(f.ctx, pulse.TurnID(f.id()))
	mustCode(f.t, err, pulse.CodeNotFound, "an unknown turn")
	loop := f.say(s, "", "circle")
	f.place.Exec(f.t, "UPDATE turns SET parent_id = id WHERE id = '"+string(loop)+"'")
	got, err = f.Ancestors(f.ctx, loop, 5)
	mustBe(f.t, err, nil, "a circle")
	equal(f.t, len(got), 5, "a circle ends at the limit")
}

func turnsInOrder(f *fixture) {
	s := f.addSession()
	first := f.say(s, "", "one", "two")
	second := f.say(s, first, "three")
	got, err := f.Turns(f.ctx, s.ID)
	mustBe(f.t, err, nil, "turns")
	equal(f.t, len(got), 2, "turns")
	equal(f.t, got[0].Turn.ID, first, "first")
	equal(f.t, got[0].Messages[1].Text, "two", "second message")
	equal(f.t, got[1].Turn.ID, second, "second")
	got, err = f.Turns(f.ctx, "nonsense")
	mustBe(f.t, err, nil, "turns of nonsense")
	equal(f.t, len(got), 0, "turns of nonsense")
	slice := pulse.Slice{ID: "s1", TurnIDs: []pulse.TurnID{second, first}, NodeCount: 2, Tokens: 7}
	f.apply(pulse.Guard{}, pulse.Change{Slice: &slice})
	f.apply(pulse.Guard{}, pulse.Change{Slice: &slice})
	read, err := f.Slice(f.ctx, "s1")
	mustBe(f.t, err, nil, "slice")
	equal(f.t, read.TurnIDs[0], second, "order of a slice")
	equal(f.t, read.Tokens, 7, "tokens")
}

func inbox(f *fixture) {
	in := func(id string, order int64) pulse.Inbound {
		return pulse.Inbound{Platform: "telegram", Source: "bot", UpdateID: id, Order: order, Payload: []byte(`{"id":` + id + `}`), ReceivedAt: f.clock.Now()}
	}
	offset, err := f.Offset(f.ctx, "bot")
	mustBe(f.t, err, nil, "offset")
	equal(f.t, offset, "", "offset at first")
	n, err := f.Receive(f.ctx, "bot", []pulse.Inbound{in("12", 12), in("10", 10), in("11", 11)}, "13")
	mustBe(f.t, err, nil, "receive")
	equal(f.t, n, 3, "new")
	n, err = f.Receive(f.ctx, "bot", []pulse.Inbound{in("11", 11), in("13", 13), in("13", 13)}, "")
	mustBe(f.t, err, nil, "receive again")
	equal(f.t, n, 1, "new of a repeated batch")
	n, err = f.Receive(f.ctx, "other", []pulse.Inbound{in("11", 11)}, "x")
	mustBe(f.t, err, nil, "another source")
	equal(f.t, n, 1, "new of another source")
	offset, err = f.Offset(f.ctx, "bot")
	mustBe(f.t, err, nil, "offset")
	equal(f.t, offset, "13", "offset")
	pending, err := f.PendingInbound(f.ctx, 10)
	mustBe(f.t, err, nil, "pending")
	equal(f.t, len(pending), 5, "pending")
	for i, want := range []string{"10", "11", "12", "13", "11"} {
		equal(f.t, pending[i].UpdateID, want, "order")
	}
	mustBe(f.t, f.DeferInbound(f.ctx, pending[0].ID, "boom", f.clock.Now().Add(time.Minute)), nil, "defer")
	f.apply(pulse.Guard{Inbound: pending[1].ID}, pulse.Change{})
	pending, err = f.PendingInbound(f.ctx, 10)
	mustBe(f.t, err, nil, "pending")
	equal(f.t, len(pending), 3, "pending after one handled and one deferred")
	equal(f.t, pending[0].UpdateID, "12", "next")
	f.clock.Advance(time.Minute)
	pending, err = f.PendingInbound(f.ctx, 1)
	mustBe(f.t, err, nil, "pending")
	equal(f.t, pending[0].UpdateID, "10", "the deferred one is back")
}

func holding(f *fixture) {
	say := func(id string, order int64) {
		f.t.Helper()
		_, err := f.Receive(f.ctx, "bot", []pulse.Inbound{{Platform: "telegram", Source: "bot", UpdateID: id, Order: order, Payload: []byte("{}")}}, "")
		mustBe(f.t, err, nil, "receive")
	}
	due := func(want string) []pulse.Inbound {
		f.t.Helper()
		got, err := f.PendingInbound(f.ctx, 10)
		mustBe(f.t, err, nil, "pending")
		var ids []string
		for _, in := range got {
			ids = append(ids, in.UpdateID)
		}
		equal(f.t, strings.Join(ids, " "), want, "pending")
		return got
	}
	held := func(want string) {
		f.t.Helper()
		got, err := f.HeldInbound(f.ctx)
		mustBe(f.t, err, nil, "held")
		var ids []string
		for _, in := range got {
			ids = append(ids, in.UpdateID)
		}
		equal(f.t, strings.Join(ids, " "), want, "held")
	}
	for i, id := range []string{"1", "2", "3"} {
		say(id, int64(i+1))
	}
	got := due("1 2 3")
	first, second := got[0].ID, got[1].ID
	mustBe(f.t, f.HoldInbound(f.ctx, first, "boom", f.clock.Now().Add(time.Minute)), nil, "hold")
	mustBe(f.t, f.QueueInbound(f.ctx, second, first), nil, "queue")
	mustBe(f.t, f.QueueInbound(f.ctx, first, first), nil, "nothing waits for itself")
	due("3")
	held("1 2")
	f.clock.Advance(time.Minute)
	due("1 3")
	held("1 2") // until it is handled, or holds no longer
	mustBe(f.t, f.DeferInbound(f.ctx, first, "waits for a choice", f.clock.Now().Add(time.Hour)), nil, "defer")
	due("2 3")
	held("")
	mustBe(f.t, f.HoldInbound(f.ctx, first, "boom", f.clock.Now().Add(time.Hour)), nil, "hold again")
	mustBe(f.t, f.QueueInbound(f.ctx, second, first), nil, "queue again")
	mustBe(f.t, f.QueueInbound(f.ctx, got[2].ID, second), nil, "queue the third")
	due("")
	f.clock.Advance(time.Hour)
	due("1")
	f.apply(pulse.Guard{Inbound: first}, pulse.Change{})
	due("2")
	f.apply(pulse.Guard{Inbound: second}, pulse.Change{})
	due("3")
}

// recycled is a platform that numbers its updates anew after a week of quiet.
func recycled(f *fixture) {
	in := func(id, payload string) pulse.Inbound {
		return pulse.Inbound{Platform: "telegram", Source: "bot", UpdateID: id, Order: 5, Payload: []byte(payload), ReceivedAt: f.clock.Now()}
	}
	fresh := func(want int, updates ...pulse.Inbound) {
		f.t.Helper()
		n, err := f.Receive(f.ctx, "bot", updates, "6@0")
		mustBe(f.t, err, nil, "receive")
		equal(f.t, n, want, "new")
	}
	fresh(1, in("5", "one"))
	first, err := f.PendingInbound(f.ctx, 10)
	mustBe(f.t, err, nil, "pending")
	f.clock.Advance(24 * time.Hour)
	fresh(0, in("5", "two")) // within the time in which an id means one update
	f.clock.Advance(7 * 24 * time.Hour)
	fresh(0, in("5", "two")) // the old one waits still: it may be this one
	f.apply(pulse.Guard{Inbound: first[0].ID}, pulse.Change{})
	fresh(0, in("5", "one")) // the same words are the same update
	fresh(1, in("5", "two"))
	fresh(0, in("5", "two"))
	got, err := f.PendingInbound(f.ctx, 10)
	mustBe(f.t, err, nil, "pending")
	equal(f.t, len(got), 1, "pending")
	equal(f.t, string(got[0].Payload), "two", "the one that came after the quiet")
}

func findingSessions(f *fixture) {
	first := f.addSession()
	f.clock.Advance(time.Second)
	topic := f.newSession()
	topic.ChatThreadID, topic.Status = "7", pulse.SessionRunning
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &topic})
	count := func(flt pulse.SessionFilter, want ...pulse.SessionID) {
		f.t.Helper()
		got, err := f.Sessions(f.ctx, flt)
		mustBe(f.t, err, nil, "sessions")
		equal(f.t, len(got), len(want), "sessions")
		for i := range want {
			equal(f.t, got[i].ID, want[i], "newest first")
		}
	}
	count(pulse.SessionFilter{}, topic.ID, first.ID)
	count(pulse.SessionFilter{Limit: 1}, topic.ID)
	count(pulse.SessionFilter{Statuses: []pulse.SessionStatus{pulse.SessionPending, pulse.SessionFailed}}, first.ID)
	count(pulse.SessionFilter{Address: chat}, first.ID)
	count(pulse.SessionFilter{Address: pulse.Address{Platform: "telegram", Chat: "42", Thread: "7"}}, topic.ID)
	count(pulse.SessionFilter{Address: pulse.Address{Platform: "sms", Chat: "42"}})
	count(pulse.SessionFilter{ProjectID: f.project.ID}, topic.ID, first.ID)
	count(pulse.SessionFilter{ProjectID: "nonsense"})
	count(pulse.SessionFilter{Statuses: []pulse.SessionStatus{broken}})
	for _, key := range []string{string(first.ID), strings.ToUpper(string(first.ID)), pulse.Short(first.ID), " " + pulse.Short(first.ID) + "\n"} {
		got, err := f.FindSession(f.ctx, key)
		mustBe(f.t, err, nil, "find "+key)
		equal(f.t, got.ID, first.ID, "found by "+key)
	}
	for _, key := range []string{"", "%", "_", "zzzz", strings.Repeat("a", 100), f.id()} {
		_, err := f.FindSession(f.ctx, key)
		mustCode(f.t, err, pulse.CodeNotFound, "find "+key)
	}
	for range 16 { // some two of these end in the same digit
		f.addSession()
	}
	all, err := f.Sessions(f.ctx, pulse.SessionFilter{})
	mustBe(f.t, err, nil, "sessions")
	ends := map[string]int{}
	for _, s := range all {
		ends[string(s.ID)[35:]]++
	}
	for end, n := range ends {
		if n > 1 {
			_, err := f.FindSession(f.ctx, end)
			mustCode(f.t, err, pulse.CodeInvalid, "an ambiguous end")
			return
		}
	}
	f.t.Fatal("eighteen ids with seventeen different ends")
}
