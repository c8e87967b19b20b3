package e2e

import (
	"testing"

	"pulseloop/e2e/e2etest"
)

func TestMain(m *testing.M) { e2etest.Main(m) }
