package main

import (
	"net"
	"testing"
	"time"

	"pulseloop/api/client"
	"pulseloop/pulse"
)

func TestAStrangerWithoutAWordIsOutOfReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.New(client.Config{BaseURL: "http://" + l.Addr().String(), HTTP: patient(50 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Projects(t.Context()); pulse.CodeOf(err) != pulse.CodeUnavailable {
		t.Errorf("a server that says nothing: %v", err)
	}
}
