package modeltest

import "fmt"

// answer is what the server has decided to do with a request.
type answer struct {
	script Script
	steps  []Step
	fault  *Fault
}

// decide finds the script of the request's conversation and the turn its state has come to. The error says what the script
// is missing.
func (s *Server) decide(r Request) (answer, error) {
	i, err := s.choose(r)
	if err != nil {
		return answer{}, err
	}
	script, round := s.scripts[i], r.Rounds()
	a := answer{script: script, fault: s.strike(i, round)}
	if a.fault != nil && a.fault.Status != 0 {
		return a, nil
	}
	a.steps, err = script.turn(r, round)
	if err != nil {
		return answer{}, err
	}
	for _, st := range a.steps {
		if st.Kind == StepTool && !r.Offers(st.Tool) {
			return answer{}, fmt.Errorf("script %q calls tool %q, which the request does not offer (it offers %q)", script.Name, st.Tool, r.Tools)
		}
	}
	return a, nil
}

func (s *Server) choose(r Request) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, script := range s.scripts {
		if !script.matches(r) {
			continue
		}
		if script.Once {
			key := r.conversation()
			if who, taken := s.owner[i]; taken && who != key {
				continue
			}
			s.owner[i] = key
		}
		return i, nil
	}
	return 0, fmt.Errorf("no script expects prompt %.300q (model %s, %d messages, tools %q)", r.Prompt(), r.Model, len(r.Messages), r.Tools)
}

// strike returns the fault that is due at this turn and counts it.
func (s *Server) strike(script, round int) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.scripts[script].Faults {
		if f.Turn != -1 && f.Turn != round {
			continue
		}
		key := [2]int{script, i}
		if f.Times > 0 && s.hits[key] >= f.Times {
			continue
		}
		s.hits[key]++
		return &f
	}
	return nil
}

func (s Script) turn(r Request, round int) ([]Step, error) {
	if s.Turns == nil && s.Reply != nil {
		return s.Reply(r), nil
	}
	if round >= len(s.Turns) {
		return nil, fmt.Errorf("script %q has %d turns, but the conversation asks for turn %d (prompt %.200q)", s.Name, len(s.Turns), round, r.Prompt())
	}
	return s.Turns[round], nil
}
