//go:build linux

package proc

import (
	"bufio"
	"syscall"
	"testing"
	"time"
)

// TestStopLeavesTheSuccessorAlone has a second run of the same task, as another daemon on this machine would start it. Ending
// the first must not end it.
func TestStopLeavesTheSuccessorAlone(t *testing.T) {
	spec := Spec{Path: "sh", Env: BaseEnv(), Args: []string{"-c", "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $!; wait"}, Marker: "takeover-" + time.Now().Format(time.RFC3339Nano)}
	first, second := mustStart(t, spec), mustStart(t, spec)
	var strays [2]int
	for i, p := range []*Process{first, second} {
		line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range line[:len(line)-1] {
			strays[i] = 10*strays[i] + int(c-'0')
		}
	}
	// In one process siblings are known to each other; a sibling of another process is known by its token alone.
	household.mu.Lock()
	delete(household.children, second.pid)
	household.mu.Unlock()
	first.Stop(t.Context())
	if syscall.Kill(second.pid, 0) != nil || syscall.Kill(strays[1], 0) != nil {
		t.Error("the successor was ended with the first")
	}
	if syscall.Kill(strays[0], 0) == nil {
		t.Error("what the first left behind lives")
	}
	household.mu.Lock()
	household.children[second.pid] = second
	household.mu.Unlock()
	second.Stop(t.Context())
}
