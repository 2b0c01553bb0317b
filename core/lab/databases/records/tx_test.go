package records_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/sqlrecords"
)

type order struct{ ID int64 }

// receipt has the number that the effect of its run has.
type receipt struct{ Run int64 }

type buying = idempotent.Func[order, receipt]

// shop runs orders in transactions of db. Its lock is its own: no other process's keeps it from running. do runs
// in each transaction after the effect.
func (p *product) shop(db *sql.DB, do func(context.Context, order) error) (*buying, *core.Engine, error) {
	e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithForceRelease(), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, err
	}
	records, err := sqlrecords.New(db, p.dialect, "shop")
	if err != nil {
		return nil, e, err
	}
	f, err := idempotent.New(e, core.Policy{Key: "buy:{ID}", Wait: time.Minute}, records, func(ctx context.Context, o order) (receipt, error) {
		run := rand.Int64()
		if _, err := idempotent.TxFrom(ctx).ExecContext(ctx, p.insert, o.ID, run); err != nil {
			return receipt{}, err
		}
		return receipt{run}, do(ctx, o)
	}, idempotent.Policy{Died: idempotent.Tx})
	return f, e, err
}

// open returns a shop for a test.
func (d *database) open(t *testing.T, db *sql.DB, do func(context.Context, order) error) (*buying, *core.Engine) {
	t.Helper()
	f, e, err := d.shop(db, do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return f, e
}

func nothing(context.Context, order) error { return nil }

// has checks that an order has had that many effects.
func (d *database) has(t *testing.T, id int64, effects int64) {
	t.Helper()
	if n := d.Number(t, fmt.Sprintf(`SELECT count(*) FROM effect WHERE id = %d`, id)); n != effects {
		t.Errorf("order %d has had %d effects, want %d", id, n, effects)
	}
}

// gets calls, and checks that the answer is that of the effect.
func (d *database) gets(t *testing.T, f *buying, id int64) {
	t.Helper()
	got, err := f.Call(t.Context(), order{id})
	if err != nil {
		t.Errorf("order %d: %v", id, err)
		return
	}
	if d.has(t, id, 1); got.Run != d.Number(t, fmt.Sprintf(`SELECT min(run) FROM effect WHERE id = %d`, id)) {
		t.Errorf("order %d has the answer of another run", id)
	}
}

func TestTransactionIsCommittedWithItsRecordOrNotAtAll(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		soldOut := errors.New("sold out")
		for i, try := range []struct {
			does    string
			do      func(ctx context.Context) error
			kind    error
			effects int64
		}{
			{"returns", func(context.Context) error { return nil }, nil, 1},
			{"fails", func(context.Context) error { return soldOut }, soldOut, 0},
			{"panics", func(context.Context) error { panic("boom") }, errPanic, 0},
			{"commits by itself", func(ctx context.Context) error { return idempotent.TxFrom(ctx).Commit() }, nil, 1},
			{"rolls back by itself", func(ctx context.Context) error { return idempotent.TxFrom(ctx).Rollback() }, nil, 0},
			{"loses its connection", func(ctx context.Context) error { d.cut(ctx); return nil }, idempotent.ErrUnavailable, 0},
		} {
			id := int64(i)
			ran := 0
			f, _ := d.open(t, d.DB, func(ctx context.Context, _ order) error {
				if ran++; ran > 1 {
					return nil
				}
				return try.do(ctx)
			})
			err := func() (err error) {
				defer func() {
					if recover() != nil {
						err = errPanic
					}
				}()
				_, err = f.Call(t.Context(), order{id})
				return err
			}()
			if !errors.Is(err, try.kind) || (err == nil) != (try.kind == nil) {
				t.Errorf("%s: %v, want %v", try.does, err, try.kind)
			}
			d.has(t, id, try.effects)
			if try.does != "rolls back by itself" { // which is its word that there is none
				d.gets(t, f, id)
			}
			if _, err := f.Call(t.Context(), order{id}); err != nil || ran != 1 && try.kind == nil {
				t.Errorf("%s: it ran %d times, %v", try.does, ran, err)
			}
		}
	})
}

var errPanic = errors.New("panic")

func TestFailureIsKeptAndItsEffectsAreRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		e, err := core.New(memlock.New(), core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		g, err := idempotent.NewGuard(e, core.Policy{Key: "buy:{ID}"}, d.store(t, d.DB), idempotent.Policy{Died: idempotent.Tx}, core.Fields[order]())
		if err != nil {
			t.Fatal(err)
		}
		call := func() (replay []byte, err error) {
			return g.Do(t.Context(), order{1}, [32]byte{}, func(ctx context.Context) idempotent.Ending {
				_, err := idempotent.TxFrom(ctx).ExecContext(ctx, d.insert, 1, 1)
				return idempotent.Ending{Answer: []byte("sold out"), Keep: err == nil, Failed: true}
			})
		}
		if replay, err := call(); replay != nil || err != nil {
			t.Errorf("%q, %v", replay, err)
		}
		if replay, err := call(); string(replay) != "sold out" || err != nil {
			t.Errorf("%q, %v", replay, err)
		}
		d.has(t, 1, 0)
	})
}

// cut ends the connection of a transaction, as an operator does.
func (d *database) cut(ctx context.Context) {
	var id int64
	own, kill := `SELECT connection_id()`, `KILL %d`
	if d.dialect == sqlrecords.PostgreSQL {
		own, kill = `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d)`
	}
	_ = idempotent.TxFrom(ctx).QueryRowContext(ctx, own).Scan(&id)
	_, _ = d.ExecContext(ctx, fmt.Sprintf(kill, id))
}

func TestCallersWhoHangUpGetTheAnswerLater(t *testing.T) {
	hangups := counts.Of(t, "hangups", 30, 1000)
	onEach(t, func(t *testing.T, d *database) {
		hangUp := make(chan bool)
		f, _ := d.open(t, d.DB, func(ctx context.Context, _ order) error { hangUp <- true; return ctx.Err() })
		for id := range int64(hangups) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-hangUp; cancel() }()
			_, _ = f.Call(ctx, order{id}) // nobody listens
			d.gets(t, f, id)
		}
		t.Logf("%d callers hung up after the effect: each got the answer of that when he asked again", hangups)
	})
}

func TestOvertakenRunIsRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var locks *core.Engine
		var f *buying
		ran := 0
		f, locks = d.open(t, d.DB, func(ctx context.Context, o order) error {
			if ran++; ran > 1 {
				return nil
			}
			time.Sleep(2500 * time.Millisecond) // its record can be taken over by now
			if _, err := locks.ForceRelease(ctx, "buy:1"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if _, err := f.Call(context.WithoutCancel(ctx), o); err != nil {
				t.Error(err)
			}
			return nil
		})
		if _, err := f.Call(t.Context(), order{1}); !errors.Is(err, core.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		d.gets(t, f, 1)
	})
}

// codec reads one connection, whose statements are sent as text, and sees its commits.
type codec struct{ proxy.Chunks }

func (c *codec) Read(d proxy.Direction, from io.Reader) ([]byte, error) {
	return c.Chunks.Read(d, from)
}

func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[string]) {
	if m.Reply = d == proxy.ToClient; m.Reply {
		return m
	}
	if m.Count = "requests"; bytes.Contains(bytes.ToLower(data), []byte("commit")) {
		m.Requests = []string{"commit"}
	}
	return m
}

func (d *database) link(t *testing.T) *proxy.Proxy[string] {
	t.Helper()
	return proxy.Start(t, d.On.Addr(), proxy.Options[string]{Codec: func() proxy.Codec[string] { return &codec{} }})
}

func TestLostReplyToACommitIsFoundOut(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		link := d.link(t)
		f, _ := d.open(t, d.Connect(t, link.Addr(), d.text), nothing)
		dropped := link.DropReply(func(request string) bool { return request == "commit" })
		if _, err := f.Call(t.Context(), order{1}); !errors.Is(err, idempotent.ErrUnavailable) || !dropped() {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		d.gets(t, f, 1)
	})
}

func TestRoundTripsAreFew(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		link := d.link(t)
		e, err := core.New(memlock.New(), core.WithNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		f := idempotent.Must(e, core.Policy{Key: "buy:{ID}"}, d.store(t, d.Connect(t, link.Addr(), d.text)),
			func(context.Context, order) (receipt, error) { return receipt{}, nil }, idempotent.Policy{Died: idempotent.Refuse})
		var took [2]int64
		for id := range int64(3) { // the first use of a connection costs more
			for i := range took {
				before := link.Count("requests")
				if _, err := f.Call(t.Context(), order{id}); err != nil {
					t.Fatal(err)
				}
				took[i] = int64(link.Count("requests") - before)
			}
		}
		if took != [2]int64{d.trips, 1} {
			t.Errorf("a run took %d round trips and a replay %d; want %d and 1", took[0], took[1], d.trips)
		}
	})
}

func (p *product) buyerRole() string { return "buyer in " + p.Name }

// purchase is what a buyer does: orders from that number on, until it is killed.
type purchase struct {
	Source string
	From   int64
}

const window = 40

func (p *product) buy(told string) error {
	var what purchase
	if err := json.Unmarshal([]byte(told), &what); err != nil {
		return err
	}
	db, err := sql.Open(p.Driver, what.Source)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(20)
	f, _, err := p.shop(db, func(context.Context, order) error {
		time.Sleep(rand.N(3 * time.Millisecond))
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				_, _ = f.Call(context.Background(), order{what.From + rand.Int64N(window)})
			}
		})
	}
	all.Wait()
	return nil
}

// Even without a lock that keeps processes apart.
func TestKilledProcessesLeaveOneEffectOfEachCall(t *testing.T) {
	kills := counts.Of(t, "kills", 8, 500)
	onEach(t, func(t *testing.T, d *database) {
		var buyers [3]*child.Process
		start := func(kill int) {
			b, err := child.Start(t, d.buyerRole(), purchase{d.SourceAt(d.On.Addr()), int64(kill) * window / 4})
			if err != nil {
				t.Fatal(err)
			}
			if line, err := b.Out.ReadString('\n'); line != "ready\n" {
				t.Fatalf("the buyer says %q, %v", line, err)
			}
			buyers[kill%len(buyers)] = b
		}
		for kill := range len(buyers) {
			start(kill)
		}
		for kill := range kills {
			time.Sleep(rand.N(60 * time.Millisecond))
			buyers[kill%len(buyers)].Kill()
			start(kill + len(buyers))
		}
		for _, b := range buyers {
			b.Kill()
		}
		const begun = 1
		died := d.Number(t, fmt.Sprintf(`SELECT count(*) FROM lockaround_record WHERE stage = %d`, begun))
		committed := d.Number(t, `SELECT count(*) FROM effect`)
		f, _ := d.open(t, d.DB, nothing)
		last := int64(kills+len(buyers)-1)*window/4 + window
		var all sync.WaitGroup
		for n := range int64(4) {
			all.Go(func() {
				for id := n; id < last; id += 4 {
					d.gets(t, f, id)
				}
			})
		}
		all.Wait()
		t.Logf("%d processes were killed; %d of %d calls were committed then, %d had begun and ran again: one effect each", kills+len(buyers), committed, last, died)
	})
}
