package db

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"pulseloop/pulse"
)

const (
	wakeChannel = "pulse_wakes"
	notifyGap   = 5 * time.Millisecond
	notifyFor   = 5 * time.Second

	// A server that is back should be noticed at once, and one that is away
	// can be asked often: it costs a refused connection.
	reconnectFrom = 50 * time.Millisecond
	reconnectTo   = 250 * time.Millisecond

	steady = 10 * time.Second // a connection that lasted so long was a good one
)

// notifier carries wake-ups between processes that share a PostgreSQL. It
// sends at once, then at most one notification every notifyGap with all the
// topics of the meantime: commits with NOTIFY queue up on one lock, so one a
// row would slow every writer. Whatever is lost is found by polling.
type notifier struct {
	me     string // marks our own notifications, which the hub knows already
	hub    *hub
	log    *slog.Logger
	out    *pgxpool.Pool
	pooled bool // a pooler stands between
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	pending topicSet
	kick    chan struct{}
}

func startNotifier(cfg *pgx.ConnConfig, h *hub, log *slog.Logger, out *pgxpool.Pool, pooled bool) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{me: pulse.NewUUID(time.Now()), hub: h, log: log, out: out, pooled: pooled, cancel: cancel, pending: topicSet{}, kick: make(chan struct{}, 1)}
	n.group.Go(func() { n.send(ctx) })
	n.group.Go(func() { n.listen(ctx, cfg) })
	return n
}

func (n *notifier) stop() {
	n.cancel()
	n.group.Wait()
}

func (n *notifier) announce(topics topicSet) {
	n.mu.Lock()
	n.pending.addAll(topics)
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

func (n *notifier) take() topicSet {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.pending
	n.pending = topicSet{}
	return out
}

func (n *notifier) send(ctx context.Context) {
	for {
		select {
		case <-n.kick:
		case <-ctx.Done():
			return
		}
		if topics := n.take(); len(topics) > 0 {
			n.notify(ctx, topics)
		}
		select {
		case <-time.After(notifyGap):
		case <-ctx.Done():
			return
		}
	}
}

// A notification is a commit like any other, so it would wait for the disk;
// but what it says is not kept there.
const notifySQL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

func (n *notifier) notify(ctx context.Context, topics topicSet) {
	ctx, cancel := context.WithTimeout(ctx, notifyFor)
	defer cancel()
	names := make([]string, 0, len(topics))
	for _, t := range slices.Sorted(maps.Keys(topics)) {
		names = append(names, string(t))
	}
	if err := n.say(ctx, wakeChannel, n.me+":"+strings.Join(names, ",")); err != nil && ctx.Err() == nil {
		n.log.Warn("wake-up not sent; others will notice by polling", "error", err)
	}
}

func (n *notifier) say(ctx context.Context, channel, text string) error {
	_, err := poolConn(n.out).ExecContext(ctx, notifySQL, channel, text)
	return err
}

// listen holds a connection of its own and makes a new one when it breaks.
func (n *notifier) listen(ctx context.Context, cfg *pgx.ConnConfig) {
	wait, told := reconnectFrom, false
	for ctx.Err() == nil {
		began := time.Now()
		err := n.receive(ctx, cfg)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errDeaf) {
			n.log.Warn("no wake-ups: polling finds within a second what other processes did; for wake-ups use the pooler's session mode, or the address of PostgreSQL itself", "error", err)
			return
		}
		if lasted := time.Since(began); lasted > steady {
			wait, told = reconnectFrom, false
		}
		if !told { // once, not four times a second
			n.log.Warn("wake-ups from the database interrupted", "error", err)
			told = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, reconnectTo)
	}
}

func (n *notifier) receive(ctx context.Context, cfg *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	if n.pooled {
		if err := n.hears(ctx, conn); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel); err != nil {
		return err
	}
	n.wakeAll() // whatever was said while nobody listened
	for {
		note, err := n.next(ctx, conn)
		if err != nil {
			return err
		}
		sender, names, _ := strings.Cut(note.Payload, ":")
		if sender == n.me {
			continue
		}
		topics := topicSet{}
		for name := range strings.SplitSeq(names, ",") {
			topics[pulse.Topic(name)] = struct{}{}
		}
		n.hub.wake(topics)
	}
}

func (n *notifier) wakeAll() {
	topics := topicSet{}
	for _, t := range pulse.Topics() {
		topics[t] = struct{}{}
	}
	n.hub.wake(topics)
}
