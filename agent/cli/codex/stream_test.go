package codex

import (
	"testing"

	"pulseloop/agent/cli/clitest"
)

func TestRecordedStreams(t *testing.T) { clitest.Golden(t, New(Config{})) }

func FuzzDecode(f *testing.F) {
	d := dialect()
	clitest.Fuzz(f, New(Config{}), d.Started()+"\n"+d.Thought("x")+"\n"+d.ToolStart("a", "ls")+"\n"+d.ToolEnd("a", "b", true)+"\n"+d.Done("end"),
		d.Fail("no"), completed(`"id":"2","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":1},"result":{"x":"\u001b"}`),
		completed(`"id":"3","type":"file_change","changes":[{"path":"/repo/a","kind":"add"}]`), completed(`"id":"4","type":"web_search","query":"q"`))
}
