package job_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/job"
)

func idle(context.Context) error { return nil }

// forgetful is a driver that cannot keep a key after its release.
type forgetful struct{ driver.Driver }

func (d forgetful) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Name, c.Keep = "zookeeper", false
	return c
}

func TestJobThatCannotWorkIsRefusedWithItsNumbers(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	wait, long := 5*time.Second, 10*time.Minute
	overridden, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{"short": {Wait: &wait}, "long": {TTL: &long}, "never": {Wait: new(time.Duration)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = overridden.Close() }()
	type schedule = job.Schedule
	const s, m = time.Second, time.Minute
	key := core.Policy{Key: "job:report"}
	with := func(change func(*core.Policy)) core.Policy { p := key; change(&p); return p }
	for _, tc := range []struct {
		name     string
		engine   *core.Engine
		policy   core.Policy
		schedule schedule
		want     []string
	}{
		{"no period", e, key, schedule{}, []string{"Schedule.Every is 0s", "shortest time between two ticks"}},
		{"a negative period", e, key, schedule{Every: -s}, []string{"Schedule.Every is -1s"}},
		{"too long a period", e, key, schedule{Every: job.MaxEvery + 1}, []string{"at most 17520h0m0s"}},
		{"a negative skew", e, key, schedule{Every: m, Skew: -s}, []string{"Schedule.Skew is -1s"}},
		{"a negative run", e, key, schedule{Every: m, MaxRun: -s}, []string{"Schedule.MaxRun is -1s", "use 0 for Every, which is 1m0s"}},
		{"skew of half the period", e, key, schedule{Every: m, Skew: 30 * s}, []string{`"job:report"`, "Skew 30s must be shorter than MinHold 30s", "half of Every, 30s"}},
		{"hold that is too short", e, with(func(p *core.Policy) { p.MinHold = 5 * s }), schedule{Every: m, Skew: 5 * s}, []string{"Skew 5s must be shorter than MinHold 5s"}},
		{"hold into the next tick", e, with(func(p *core.Policy) { p.MinHold = 56 * s }), schedule{Every: m, Skew: 5 * s}, []string{"Skew 5s with MinHold 56s must be no longer than Every 1m0s"}},
		{"hold beyond the period", e, with(func(p *core.Policy) { p.MinHold = core.MaxTTL }), schedule{Every: m}, []string{"MinHold 8760h0m0s must be no longer than Every 1m0s"}},
		{"wait without catch-up", e, with(func(p *core.Policy) { p.Wait = s }), schedule{Every: m}, []string{"Wait is 1s without Schedule.CatchUp", "set CatchUp"}},
		{"every without its unit", e, key, schedule{Every: 60}, []string{"Schedule.Every is 60ns", "as in 60*time.Second"}},
		{"catch-up without a wait by an override", overridden, with(func(p *core.Policy) { p.Name = "never" }), schedule{Every: 10 * m, MaxRun: s, CatchUp: true}, []string{`"never"`, "an override sets Wait to 0"}},
		{"catch-up of runs without bound", e, key, schedule{Every: m, CatchUp: true}, []string{"CatchUp is set without MaxRun"}},
		{"catch-up of runs beyond the next tick", e, key, schedule{Every: m, MaxRun: m, CatchUp: true}, []string{"Schedule.MaxRun is 1m0s", "next tick comes after 1m0s"}},
		{"catch-up without room", e, key, schedule{Every: 3 * m, Skew: 10 * s, MaxRun: 20 * s, CatchUp: true}, []string{
			"Skew 10s and Wait 1m20s together must be shorter than MinHold 1m30s", "half of Every, 1m30s", "MaxRun 20s", "twice the TTL 30s", "leave CatchUp out",
		}},
		{"catch-up that ends before the lease", e, with(func(p *core.Policy) { p.Wait = 50 * s }), schedule{Every: 10 * m, MaxRun: 20 * s, CatchUp: true}, []string{"Wait is 50s", "MaxRun 20s", "TTL 30s"}},
		{"catch-up for ever", e, with(func(p *core.Policy) { p.Wait = core.Forever }), schedule{Every: m, MaxRun: s, CatchUp: true}, []string{"the next tick comes after 1m0s"}},
		{"catch-up by an override that ends too soon", overridden, with(func(p *core.Policy) { p.Name = "short" }), schedule{Every: 10 * m, MaxRun: s, CatchUp: true}, []string{`"short"`, "Wait is 5s"}},
		{"catch-up by an override that lasts too long", overridden, with(func(p *core.Policy) { p.Name = "long" }), schedule{Every: 10 * m, MaxRun: s, CatchUp: true}, []string{"twice the TTL 10m0s"}},
		{"shared", e, with(func(p *core.Policy) { p.Mode = core.Shared }), schedule{Every: m}, []string{"Mode is shared"}},
		{"not renewed", e, with(func(p *core.Policy) { p.NoRenew = true }), schedule{Every: m}, []string{"NoRenew is set", "Schedule.MaxRun"}},
		{"lingering", e, with(func(p *core.Policy) { p.Linger = s }), schedule{Every: m}, []string{"Linger is 1s", "use 0"}},
		{"bounded below its hold", e, with(func(p *core.Policy) { p.MaxHold = 10 * s }), schedule{Every: m}, []string{"MaxHold is 10s", "30s", "Schedule.MaxRun"}},
		{"a template", e, core.Policy{Key: "job:{name}"}, schedule{Every: m}, []string{"{name}", "a job has no argument"}},
		{"an impossible policy", e, core.Policy{}, schedule{Every: m}, []string{"neither Key nor Keys"}},
		{"nil engine", nil, key, schedule{Every: m}, []string{"engine is nil"}},
		{"a store that cannot keep keys", roomtest.Engine(t, forgetful{memlock.New()}), key, schedule{Every: m}, []string{
			"a job keeps its key by MinHold, so that no replica runs a tick again", "driver zookeeper does not offer that", "redis",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				if !errors.Is(err, core.ErrPolicy) {
					t.Fatalf("got %v", err)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
			}
			j, err := job.New(tc.engine, tc.policy, idle, tc.schedule)
			check(err)
			if j != nil {
				t.Error("NewJob returned a runner beside its error")
			}
			defer func() {
				err, _ := recover().(error)
				check(err)
			}()
			job.Must(tc.engine, tc.policy, idle, tc.schedule)
		})
	}
	if _, err := job.New(e, key, nil, schedule{Every: m}); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "function is nil") {
		t.Errorf("nil function: %v", err)
	}
}

func TestJobTimesFollowFromTheSchedule(t *testing.T) {
	ttl, wait := 4*time.Second, 4*time.Minute
	e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithOverrides(map[string]core.Override{"quick": {TTL: &ttl}, "patient": {Wait: &wait}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	const s, m = time.Second, time.Minute
	for _, tc := range []struct {
		name               string
		policy             core.Policy
		schedule           job.Schedule
		wait, minHold, ttl time.Duration
	}{
		{"no times", core.Policy{}, job.Schedule{Every: time.Hour}, 0, 30 * m, 30 * s},
		{"the most skew", core.Policy{}, job.Schedule{Every: m, Skew: 30*s - 1}, 0, 30 * s, 30 * s},
		{"a hold of its own", core.Policy{MinHold: 55 * s}, job.Schedule{Every: m, Skew: 5 * s}, 0, 55 * s, 30 * s},
		{"the longest period", core.Policy{}, job.Schedule{Every: job.MaxEvery}, 0, core.MaxTTL, 30 * s},
		{"catch-up", core.Policy{}, job.Schedule{Every: 10 * m, Skew: 30 * s, MaxRun: 2 * m, CatchUp: true}, 3 * m, 5 * m, 30 * s},
		{"catch-up without a moment to spare", core.Policy{}, job.Schedule{Every: 10 * m, Skew: 2*m - 1, MaxRun: 2 * m, CatchUp: true}, 3 * m, 5 * m, 30 * s},
		{"catch-up with a wait of its own", core.Policy{Wait: 151 * s}, job.Schedule{Every: 10 * m, MaxRun: 2 * m, CatchUp: true}, 151 * s, 5 * m, 30 * s},
		{"catch-up with an overridden TTL", core.Policy{Name: "quick"}, job.Schedule{Every: m, MaxRun: 20 * s, CatchUp: true}, 28 * s, 30 * s, 4 * s},
		{"catch-up with an overridden wait", core.Policy{Name: "patient"}, job.Schedule{Every: 10 * m, MaxRun: m, CatchUp: true}, 4 * m, 5 * m, 30 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.policy.Key = "job:report"
			j, err := job.New(e, tc.policy, idle, tc.schedule)
			if err != nil {
				t.Fatal(err)
			}
			if p := j.Policy(); p.Wait != tc.wait || p.MinHold != tc.minHold || p.TTL != tc.ttl {
				t.Errorf("Wait %v, MinHold %v, TTL %v; want %v, %v, %v", p.Wait, p.MinHold, p.TTL, tc.wait, tc.minHold, tc.ttl)
			}
		})
	}
}

func TestJobTakesOnlyTheTTLOfAnEnginesDefaults(t *testing.T) {
	e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithDefaults(core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for name, tc := range map[string]struct {
		schedule job.Schedule
		wait     time.Duration
	}{
		"without catch-up": {job.Schedule{Every: time.Hour}, 0},
		"with catch-up":    {job.Schedule{Every: time.Hour, MaxRun: time.Minute, CatchUp: true}, 3 * time.Minute},
	} {
		j, err := job.New(e, core.Policy{Key: "job:report"}, idle, tc.schedule)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p := j.Policy(); p.Wait != tc.wait || p.TTL != time.Minute || p.MaxHold != 0 {
			t.Errorf("%s: Wait %v, TTL %v, MaxHold %v", name, p.Wait, p.TTL, p.MaxHold)
		}
	}
}
