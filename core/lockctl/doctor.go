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
	*f.all = append(*f.all, finding{l, check, f.node, inert(oneLine(seen)), why, do})
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

// unasked adds findings about what could not be asked.
func (f findings) unasked(why string, checks ...string) {
	for _, check := range checks {
		f.add(unknown, check, "not asked: "+why, "it was not checked", "fix what the other findings report, or raise -timeout, and run doctor again")
	}
}

// check is a part of what doctor looks at.
type check struct {
	name string
	run  func(context.Context, findings)
	long bool // it bounds its questions itself
}

// each makes checks one after the other, each for as long as an answer may take. After one that
// has got none the others are not made.
func (s *session) each(ctx context.Context, f findings, checks ...check) {
	silent := ""
	for _, c := range checks {
		if ctx.Err() != nil {
			silent = "the time for all checks was over"
		}
		if silent != "" {
			f.unasked(silent, c.name)
			continue
		}
		one, cancel := ctx, context.CancelFunc(func() {})
		if !c.long {
			one, cancel = context.WithTimeout(ctx, s.timeout)
		}
		c.run(one, f)
		if one.Err() != nil {
			silent = "the store did not answer the question before"
		}
		cancel()
	}
}

// isWrongPassword reports whether a store does not know the user by the password.
func isWrongPassword(text string) bool {
	for _, part := range []string{"WRONGPASS", "NOAUTH ", "SQLSTATE 28P01", "Error 1045", "invalid user ID or password"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
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
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, max(time.Minute, 10*s.timeout))
	defer cancel()
	var all []finding
	f := findings{all: &all}
	if s.user != "" && s.redis == nil && s.redlock == nil {
		return misuse("-user is for Redis")
	}
	err := s.explained(ctx, s.locks.Ping(ctx))
	wrongPassword := err != nil && isWrongPassword(err.Error())
	switch {
	case wrongPassword:
		f.add(bad, "driver", "the password is wrong: "+err.Error(), "locks cannot be taken, and nothing else can be asked", "give the URL of the store the user and the password that the store knows")
	case err != nil:
		f.add(bad, "driver", err.Error(), "locks cannot be taken", "mend what the reason says; the driver's documentation has the rights that it needs")
	default:
		f.add(good, "driver", "the store answers, and permits what this user's locks need", "", "")
	}
	switch {
	case wrongPassword:
	case s.redis != nil || s.redlock != nil:
		s.doctorRedis(ctx, f)
	case s.etcd != nil:
		s.doctorEtcd(ctx, f)
	case s.zk != nil:
		s.doctorZooKeeper(ctx, f)
	case s.db != nil:
		s.doctorSQL(ctx, f)
	}
	if err := interrupted.Err(); err != nil {
		return err
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
