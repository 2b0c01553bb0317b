package check_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

func TestFreeKeyIsGrantedInTime(t *testing.T) {
	judge(t, []story{
		{"nobody waits", "", func(b *book) {
			b.held(2, token(2, 0), 5000, 5001, 1)
		}},
		{"within the bound of a lost wake-up", "", func(b *book) {
			b.waited(2, 10, 1090)
			b.idle(1095)
		}},
		{"beyond it", "L1", func(b *book) {
			b.waited(2, 10, 1200)
			b.idle(1300)
		}},
		{"beyond it, and granted in the end", "L1", func(b *book) {
			b.acquired(2, token(2, 0), 10, 1200)
			b.released(2, token(2, 0), 1201, 1202)
		}},
		{"beyond it, by one who came last", "L1", func(b *book) {
			b.waited(2, 10, 1300)
			b.acquired(3, token(2, 0), 1250, 1251)
			b.released(3, token(2, 0), 1252, 1253)
		}},
		{"while it is held", "", func(b *book) {
			b.waited(2, 10, 1400)
			b.held(3, token(2, 0), 20, 510, 1)
			b.held(3, token(3, 0), 512, 1000, 2)
		}},
		{"while a release is under way", "", func(b *book) {
			b.waited(2, 10, 1400)
			b.acquired(3, token(2, 0), 11, 12)
			b.released(3, token(2, 0), 20, 900)
		}},
		{"while the machine was busy", "", func(b *book) {
			b.waited(2, 10, 1200)
			b.late(3, 300, 500)
			b.late(2, 400, 550)
		}},
		{"after a holder was killed", "", func(b *book) {
			b.acquired(2, token(2, 0), 10, 11)
			b.killed(2, 20)
			b.acquired(3, token(3, 0), 30, 1600)
			b.released(3, token(3, 0), 1601, 1602)
		}},
		{"too long after a holder was killed", "L1", func(b *book) {
			b.acquired(2, token(2, 0), 10, 11)
			b.killed(2, 20)
			b.acquired(3, token(3, 0), 30, 1700)
			b.released(3, token(3, 0), 1701, 1702)
		}},
		{"after an outage", "", func(b *book) {
			b.waited(2, 10, 5050)
			b.fault("freeze", 0, 20, 2000)
			b.held(3, token(2, 0), 5000, 5200, 1)
		}},
		{"too long after an outage", "L1", func(b *book) {
			b.waited(2, 10, 5200)
			b.fault("freeze", 0, 20, 2000)
			b.held(3, token(2, 0), 5190, 5300, 1)
		}},
		{"after the store was slow", "", func(b *book) {
			b.driver(history.Renew, 3, "a", 1, 20, 2000, 0, "")
			b.waited(2, 10, 5050)
			b.held(3, token(2, 0), 5000, 5200, 1)
		}},
		{"too long after the store was slow", "L1", func(b *book) {
			b.driver(history.Renew, 3, "a", 1, 20, 2000, 0, "")
			b.waited(2, 10, 5200)
			b.held(3, token(2, 0), 5190, 5300, 1)
		}},
		{"while a fault that concerns another process explains the slow answer", "L1", func(b *book) {
			b.fault("pause", 3, 20, 4000)
			b.driver(history.Renew, 3, "a", 1, 20, 4000, 0, "")
			b.acquired(2, token(2, 0), 10, 2130)
			b.released(2, token(2, 0), 2131, 2132)
			b.held(1, token(3, 0), 4010, 4011, 1)
		}},
		{"too long after something that is none", "L1", func(b *book) {
			b.waited(2, 10, 1300)
			b.add(history.Event{Op: history.Fault, Name: "script-flush", Call: at(20), Return: at(21)})
			b.held(3, token(2, 0), 1290, 1300, 1)
		}},
		{"while another process is stopped", "", func(b *book) {
			b.fault("pause", 3, 20, 4000)
			b.acquired(2, token(2, 0), 10, 2100)
			b.released(2, token(2, 0), 2101, 2102)
			b.held(1, token(3, 0), 4010, 4011, 1)
		}},
		{"too long while another process is stopped", "L1", func(b *book) {
			b.fault("pause", 3, 20, 4000)
			b.acquired(2, token(2, 0), 10, 2130)
			b.released(2, token(2, 0), 2131, 2132)
			b.held(1, token(3, 0), 4010, 4011, 1)
		}},
		{"by the process that is cut off", "", func(b *book) {
			b.fault("partition", 2, 20, 4000)
			b.waited(2, 10, 4010)
			b.held(1, token(3, 0), 4101, 4102, 1)
		}},
	})
}

func TestNewServersMayHaveNoSayAtFirst(t *testing.T) {
	for start, want := range map[time.Duration]int{0: 1, time.Second: 0} {
		var b book
		b.waited(2, 1, 1900)
		b.held(1, token(1, 0), 1899, 1900, 0)
		if got := kinds(check.All(b.events, rules.From(start)))["L1"]; got != want {
			t.Errorf("with no say for %v, a key that is free for 1.9 s breaks L1 %d times, want %d", start, got, want)
		}
	}
}

// TestDecisionThatHangsExcusesOthersForAsLongAsItMay has a process that is stopped for longer
// than T and E: T and E and the wake-up are 2 s, and the decision's 3 s and the wake-up 4 s.
func TestDecisionThatHangsExcusesOthersForAsLongAsItMay(t *testing.T) {
	for granted, broken := range map[float64]bool{4100: false, 4130: true} {
		b := &book{}
		b.held(1, token(1, 0), 1, 5, 0)
		b.fault("pause", 3, 20, 9000)
		b.acquired(2, token(2, 0), 10, granted)
		b.released(2, token(2, 0), granted+1, granted+2)
		b.idle(granted + 10)
		if r := check.All(b.events, rules.WithStuck(3*time.Second)); (kinds(r)["L1"] > 0) != broken {
			t.Errorf("granted after %v ms: %v", granted, r.Violations)
		}
	}
}

func TestAcquisitionsReturnInTime(t *testing.T) {
	returned := func(process int, ret float64) history.Event {
		return history.Event{Process: process, Client: 1, Key: key, Op: history.Acquire, Call: at(3), Limit: at(103), Return: at(ret), Error: "lock wait timed out"}
	}
	judge(t, []story{
		{"late by what is allowed", "", func(b *book) { b.add(returned(2, 252)) }},
		{"later", "L3", func(b *book) { b.add(returned(2, 254)) }},
		{"later as the process did not run", "", func(b *book) {
			b.add(returned(2, 300))
			b.late(2, 100, 200)
		}},
		{"later as another process did not run", "L3", func(b *book) {
			b.add(returned(2, 300))
			b.late(3, 100, 200)
		}},
	})
}

func TestHoldersHearOfTheirLossInTime(t *testing.T) {
	judge(t, []story{
		{"in time", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.lost(2, token(2, 0), 650, 504)
		}},
		{"late", "L5", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.lost(2, token(2, 0), 660, 504)
		}},
		{"late as it was stopped", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.late(2, 100, 1990)
			b.lost(2, token(2, 0), 2000, 504)
		}},
		{"before its deadline, from the store", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.lost(2, token(2, 0), 200, 504)
		}},
	})
}

func TestRunWithoutWorkProvesNothing(t *testing.T) {
	var idle book
	idle.fault("freeze", 0, 1, 2)
	idle.held(1, token(1, 0), 10, 11, 0)
	if got := kinds(check.All(idle.events, rules)); got["work"] != 1 {
		t.Errorf("no work before the first fault: %v", got)
	}
	var dead book
	dead.held(1, token(1, 0), 1, 2, 0)
	dead.fault("freeze", 0, 3, 4)
	if got := kinds(check.All(dead.events, rules)); got["work"] != 1 {
		t.Errorf("no work after the last fault: %v", got)
	}
	if got := kinds(check.All(nil, rules)); got["work"] != 1 {
		t.Errorf("no history: %v", got)
	}
}
