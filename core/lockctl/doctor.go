package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// level is how much a finding matters. Its values are those in JSON.
type level string

const (
	good    level = "ok"
	warn    level = "warn"
	bad     level = "bad"
	unknown level = "unknown" // the store did not say
)

// finding is one thing that doctor has looked at.
type finding struct {
	Level level  `json:"level"`
	Check string `json:"check"`
	Node  string `json:"node,omitempty"` // host and port of the server, of several
	Seen  string `json:"seen"`
	Why   string `json:"why,omitempty"` // it matters; empty if Level is ok
	Do    string `json:"do,omitempty"`  // what to do about it
}

// findings are what doctor has looked at so far, at one server.
type findings struct {
	node string
	all  *[]finding
}

func (f findings) add(l level, check, seen, why, do string) {
	if l == good {
		why, do = "", ""
	}
	*f.all = append(*f.all, finding{l, check, f.node, inert(seen), why, do})
}

// judge adds a finding that is good if so, and otherwise l.
func (f findings) judge(so bool, l level, check, seen, why, do string) {
	if so {
		l = good
	}
	f.add(l, check, seen, why, do)
}

// mute adds a finding about which the store says nothing.
func (f findings) mute(check, why, do string) {
	f.add(unknown, check, "not told: "+why, "it was not checked", do)
}

// doctorJSON is what doctor prints.
type doctorJSON struct {
	Store    string    `json:"store"`
	Findings []finding `json:"findings"`
	OK       int       `json:"ok"`
	Warn     int       `json:"warn"`
	Bad      int       `json:"bad"`
	Unknown  int       `json:"unknown"`
}

// errUnhealthy is told by the findings, and by the exit status.
type unhealthyError struct{}

func (unhealthyError) Error() string { return "" }

// doctor is the command. A bad finding is a failure; a warning is none.
func doctor(ctx context.Context, s *session, _ []string) error {
	ctx, cancel := context.WithTimeout(ctx, max(time.Minute, 10*s.timeout))
	defer cancel()
	var all []finding
	f := findings{all: &all}
	if s.user != "" && s.redis == nil && s.redlock == nil {
		return misuse("-user is for Redis")
	}
	if err := s.locks.Ping(ctx); err != nil {
		f.add(bad, "driver", s.reason(err), "locks cannot be taken", "mend what the reason says; the driver's documentation has the rights that it needs")
	} else {
		f.add(good, "driver", "the store answers, and permits what this user's locks need", "", "")
	}
	switch {
	case s.redis != nil || s.redlock != nil:
		s.doctorRedis(ctx, f)
	case s.etcd != nil:
		s.doctorEtcd(ctx, f)
	case s.zk != nil:
		s.doctorZooKeeper(ctx, f)
	case s.db != nil:
		s.doctorSQL(ctx, f)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	out := doctorJSON{Store: s.at.String(), Findings: all}
	for i := range all {
		all[i].Seen = s.secrets.scrub(all[i].Seen)
		*map[level]*int{good: &out.OK, warn: &out.Warn, bad: &out.Bad, unknown: &out.Unknown}[all[i].Level]++
	}
	if err := s.print(out, out.rows); err != nil {
		return err
	}
	if out.Bad > 0 {
		return unhealthyError{}
	}
	return nil
}

func (d doctorJSON) rows() (rows [][]string) {
	several := slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Node != "" && f.Node != d.Findings[len(d.Findings)-1].Node })
	for _, f := range d.Findings {
		if several && f.Node != "" {
			f.Seen = f.Node + ": " + f.Seen
		}
		rows = append(rows, []string{strings.ToUpper(string(f.Level)), f.Check, f.Seen})
		if f.Why != "" {
			rows = append(rows, []string{"", "", "why: " + f.Why})
		}
		if f.Do != "" {
			rows = append(rows, []string{"", "", "do:  " + f.Do})
		}
	}
	return append(rows, []string{fmt.Sprintf("%d ok, %d warn, %d bad, %d unknown", d.OK, d.Warn, d.Bad, d.Unknown)})
}

// clock judges how far a server's clock is from this machine's.
func (f findings) clock(server, before, after time.Time) {
	middle := before.Add(after.Sub(before) / 2)
	off := server.Sub(middle)
	slack := after.Sub(before)/2 + time.Millisecond
	seen := fmt.Sprintf("within %v of this machine's", (off.Abs() + slack).Round(time.Millisecond))
	if off.Abs() > maxClock {
		seen = fmt.Sprintf("%v off this machine's", off.Round(time.Millisecond))
	}
	f.judge(off.Abs() <= maxClock, warn, "clock", seen, clockWhy, "run chrony or ntpd on the servers, and let it slew rather than step")
}

// maxClock is a difference that machines which keep the time do not have.
const maxClock = time.Second

const clockWhy = "tokens are made of the server's clock: after a loss of data, or a failover, to a server whose clock is behind by more than the outage took, they may go back"
