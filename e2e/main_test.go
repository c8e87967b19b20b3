package e2e

import (
	"os"
	"testing"

	"pulseloop/e2e/e2etest"
)

func TestMain(m *testing.M) {
	if os.Getenv(insiderEnv) != "" {
		os.Exit(insiderPost(os.Args[1:], os.Stdout))
	}
	e2etest.Main(m)
}
