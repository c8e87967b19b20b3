package command

import (
	"testing"

	"pulseloop/agent/cli/clitest"
)

func FuzzDecode(f *testing.F) {
	clitest.Fuzz(f, New(Config{}), "plain", "a\x1b[31mred\x1b[0m\r\nb\rc", "\x1b]0;t\x07\xff\xc3", "\x9b1m\u009b1mä", "")
}
