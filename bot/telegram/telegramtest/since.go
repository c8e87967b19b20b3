package telegramtest

// CallsSince are the requests that arrived after the first n, for tests so long that copying all of them each time would
// be most of their work.
func (s *Server) CallsSince(n int) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= len(s.calls) {
		return nil
	}
	return append([]Call(nil), s.calls[n:]...)
}

// MessagesAfter are the bot's visible messages with an id above the given one, oldest first.
func (c *Chat) MessagesAfter(id int) []Message {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var out []Message
	for _, m := range c.messages {
		if m.ID > id && m.FromID == c.s.bot.ID && m.Service == "" && !m.deleted {
			out = append(out, m.view())
		}
	}
	return out
}

// Pushed is how many updates there were so far.
func (s *Server) Pushed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.queue.next - firstUpdate)
}

// CallAt is the request with a number, counted from 0 in order of arrival, as it stands now.
func (s *Server) CallAt(i int) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[i]
}
