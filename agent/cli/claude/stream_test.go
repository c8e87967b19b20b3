package claude

import (
	"testing"

	"pulseloop/agent/cli/clitest"
)

func TestRecordedStreams(t *testing.T) { clitest.Golden(t, New(Config{})) }

func FuzzDecode(f *testing.F) {
	d := dialect()
	clitest.Fuzz(f, New(Config{}), d.Started()+"\n"+d.Thought("x")+"\n"+d.ToolStart("a", "Read")+"\n"+d.ToolEnd("a", "b", true)+"\n"+d.Delta("d")+"\n"+d.Done("end"),
		d.Fail("no"), `{"type":"system","subtype":"api_retry","attempt":2,"error":"authentication_failed"}`,
		`{"type":"result","subtype":"compact"}`, `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}`)
}
