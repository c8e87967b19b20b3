package bot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// recheck is how often a goal that waits for the choice of its project looks
// whether the chat has one by now. A press of the button does not wait for it.
const recheck = time.Minute

// maxChoices bounds the buttons of one question.
const maxChoices = 20

// start makes a session of a goal, in a topic of its own where the place has
// them. Without a project to work on, the person is asked, and the update
// stays in the inbox until they chose: a goal survives everything there.
func (r *Router) start(ctx context.Context, u *update, goal string) error {
	if err := checkGoal(goal); err != nil {
		return err
	}
	project, err := r.projectOf(ctx, u)
	if errors.Is(err, pulse.ErrNone) {
		return r.askProject(ctx, u, goal)
	}
	if err != nil {
		return err
	}
	to, note := r.openTopic(ctx, u, goal)
	req := loop.StartRequest{Project: project, Goal: goal}
	place(&req, to)
	req.Actor = loop.Actor{Operator: u.who.ID, Name: u.who.Name, Origin: origins[u.e.Platform], Inbound: u.in.ID,
		Also: func(after pulse.Session, c *pulse.Change) {
			c.Channel = &pulse.Channel{Address: to, ProjectID: project.ID, SessionID: after.ID}
			first := r.notice(u, begun(after, note), after.ID)
			if to != u.e.Address {
				first.Address, first.ReplyTo = to, ""
				c.Notices = append(c.Notices, r.notice(u, pulse.Text(fmt.Sprintf("🚀 [%s] Started in a topic of its own: %s",
					line(after.ProjectName, 60), topicTitle(goal))), after.ID))
			}
			c.Notices = append(c.Notices, first)
		}}
	_, err = r.cfg.Doer.Start(ctx, req)
	return err
}

func checkGoal(goal string) error {
	if !visible(goal) {
		return pulse.Invalid("the goal is empty", "say what is to be done, such as: /pulse add a health endpoint")
	}
	return checkLength("goal", goal)
}

// checkLength refuses what a session would refuse, in the same measure and
// words, before a topic is opened or a project asked for.
func checkLength(what, text string) error {
	if len(text) > loop.MaxGoalBytes {
		return &pulse.Error{Code: pulse.CodeTooLarge, Message: fmt.Sprintf("the %s has %d bytes", what, len(text)),
			Hint: fmt.Sprintf("at most %d are taken; put the long part into a file of the repository and name it", loop.MaxGoalBytes)}
	}
	return nil
}

// place writes an address into the fields a session has for its platform.
func place(req *loop.StartRequest, a pulse.Address) {
	switch a.Platform {
	case pulse.PlatformTelegram:
		req.ChatID, req.ChatThreadID = a.Chat, a.Thread
	case pulse.PlatformDiscord:
		req.DiscordThreadID = a.Chat
		if a.Thread != "" {
			req.DiscordThreadID = a.Thread
		}
	case pulse.PlatformSMS:
		req.PhoneNumber = a.Chat
	case pulse.PlatformConsole:
		req.ConsoleID = a.Chat
	}
}

// openTopic opens a place of its own for a session where there can be one.
// Where it fails the session stays in the chat, with a note. A second try of
// the same update finds the topic of the first.
func (r *Router) openTopic(ctx context.Context, u *update, goal string) (to pulse.Address, note string) {
	maker := r.adapters[u.in.Platform].Topics
	if maker == nil || u.e.Private || u.e.Address.Thread != "" {
		return u.e.Address, ""
	}
	r.mu.Lock()
	known, ok := r.topics[u.in.ID]
	r.mu.Unlock()
	if ok {
		return known, ""
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	topic, ok, err := maker.OpenTopic(ctx, u.e.Address, topicTitle(goal))
	if err != nil {
		r.cfg.Log.Warn("open a topic", "inbound", string(u.in.ID), "err", err)
		return u.e.Address, "A topic of its own could not be opened, so I report here."
	}
	if !ok {
		return u.e.Address, ""
	}
	r.mu.Lock()
	r.topics[u.in.ID] = topic
	r.mu.Unlock()
	return topic, ""
}

func topicTitle(goal string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(goal), "\n")
	return line(first, 60)
}

// projectOf is the project that goals of the chat are for: the one it is
// bound to, or the one its parent is bound to, or the only one there is.
// pulse.ErrNone when somebody has to choose.
func (r *Router) projectOf(ctx context.Context, u *update) (pulse.Project, error) {
	projects, err := r.projects(ctx)
	if err != nil {
		return pulse.Project{}, err
	}
	if len(projects) == 0 {
		return pulse.Project{}, &pulse.Error{Code: pulse.CodeUnprocessed, Message: "there is no project to work on yet",
			Hint: "run pulse init in a repository, or name one under projects in pulse.yaml"}
	}
	if p, err := r.boundProject(ctx, u, projects); !errors.Is(err, pulse.ErrNone) {
		return p, err
	}
	if len(projects) == 1 {
		return projects[0], nil
	}
	return pulse.Project{}, pulse.ErrNone
}

func (r *Router) projects(ctx context.Context) ([]pulse.Project, error) {
	projects, err := r.cfg.Reader.Projects(ctx)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	slices.SortFunc(projects, func(a, b pulse.Project) int { return strings.Compare(a.Name, b.Name) })
	return projects, nil
}

func (r *Router) boundProject(ctx context.Context, u *update, projects []pulse.Project) (pulse.Project, error) {
	parent := u.e.Address
	parent.Thread = ""
	for _, a := range []pulse.Address{u.e.Address, parent} {
		ch, err := r.cfg.People.Channel(ctx, a)
		if errors.Is(err, pulse.ErrNone) {
			continue
		}
		if err != nil {
			return pulse.Project{}, fmt.Errorf("read the chat's binding: %w", err)
		}
		for _, p := range projects {
			if p.ID == ch.ProjectID {
				return p, nil
			}
		}
	}
	return pulse.Project{}, pulse.ErrNone
}

// askProject asks which project a goal is for. The update is not handled by
// this: it waits, and its goal starts as soon as the chat has a project.
func (r *Router) askProject(ctx context.Context, u *update, goal string) error {
	if u.now.Sub(u.in.ReceivedAt) > r.cfg.Choice {
		r.mu.Lock()
		r.waiting[u.e.Address] = slices.DeleteFunc(r.waiting[u.e.Address], func(id pulse.InboundID) bool { return id == u.in.ID })
		r.mu.Unlock()
		return pulse.Invalid("no project was chosen, so this goal was not started: "+topicTitle(goal),
			"choose with /project NAME and send the goal again")
	}
	projects, err := r.projects(ctx)
	if err != nil {
		return err
	}
	m := pulse.Text("Which project is this for? " + topicTitle(goal) + "\nThis chat will be bound to it; /project NAME changes that later.")
	for i, p := range projects {
		if i == maxChoices {
			m.Spans[0].Text += "\nThere are more: /projects shows them all."
			break
		}
		b := pulse.Button{Label: line(p.Name, 40), Data: choiceData(u.in.ID, p.ID)}
		if i%2 == 0 {
			m.Buttons = append(m.Buttons, nil)
		}
		last := len(m.Buttons) - 1
		m.Buttons[last] = append(m.Buttons[last], b)
	}
	n := r.notice(u, m, "")
	n.Slot = "project:" + string(u.in.ID) // the question is asked once, however often the goal looks again
	if err := r.cfg.Store.Apply(ctx, pulse.Guard{}, pulse.Change{Notices: []pulse.Notice{n}}); err != nil {
		return fmt.Errorf("ask for the project: %w", err)
	}
	r.mu.Lock()
	if !slices.Contains(r.waiting[u.e.Address], u.in.ID) {
		r.waiting[u.e.Address] = append(r.waiting[u.e.Address], u.in.ID)
	}
	r.mu.Unlock()
	if err := r.cfg.Inbox.DeferInbound(ctx, u.in.ID, "waits for the choice of a project", u.now.Add(recheck)); err != nil {
		return fmt.Errorf("keep a goal until its project is chosen: %w", err)
	}
	return nil
}

// choiceData names the goal and the project within the 64 bytes of a button.
func choiceData(goal pulse.InboundID, p pulse.ProjectID) string {
	id := string(p)
	return "p:" + string(goal) + ":" + id[max(0, len(id)-12):]
}

// chosen binds the chat to the project of a pressed button, unless somebody
// bound it before, and lets the goal go.
func (r *Router) chosen(ctx context.Context, u *update, goal pulse.InboundID, suffix string) error {
	projects, err := r.projects(ctx)
	if err != nil {
		return err
	}
	if p, err := r.boundProject(ctx, u, projects); err == nil {
		return pulse.Conflict("this chat works on "+line(p.Name, 60)+" already", "/project NAME changes that")
	} else if !errors.Is(err, pulse.ErrNone) {
		return err
	}
	for _, p := range projects {
		if suffix != "" && strings.HasSuffix(string(p.ID), suffix) {
			u.ack = p.Name
			return r.bind(ctx, u, p, goal)
		}
	}
	return pulse.NotFound("this project is not there any more", "/projects shows those there are")
}

// bind binds the chat to a project and wakes the goals that wait for one.
func (r *Router) bind(ctx context.Context, u *update, p pulse.Project, goals ...pulse.InboundID) error {
	ch, err := r.cfg.People.Channel(ctx, u.e.Address)
	if err != nil && !errors.Is(err, pulse.ErrNone) {
		return fmt.Errorf("read the chat's binding: %w", err)
	}
	ch.Address, ch.ProjectID = u.e.Address, p.ID
	err = r.finish(ctx, u, pulse.Change{Channel: &ch,
		Notices: []pulse.Notice{r.notice(u, pulse.Text("📌 This chat works on "+line(p.Name, 60)+" now."), "")},
		Audit: []pulse.AuditEntry{{At: u.now, Operator: u.who.ID, Name: u.who.Name, Action: "bind", Subject: string(p.ID),
			Detail: fmt.Sprintf("%s %s %s", ch.Address.Platform, ch.Address.Chat, ch.Address.Thread)}}})
	if err != nil {
		return err
	}
	r.mu.Lock()
	goals = append(goals, r.waiting[u.e.Address]...)
	delete(r.waiting, u.e.Address)
	r.mu.Unlock()
	for _, id := range goals { // a hint: each of them looks by itself before long
		if !pulse.ValidUUID(string(id)) {
			continue
		}
		if err := r.cfg.Inbox.DeferInbound(ctx, id, "the project was chosen", u.now); err != nil {
			r.cfg.Log.Debug("wake a waiting goal", "inbound", string(id), "err", err)
		}
	}
	return nil
}
