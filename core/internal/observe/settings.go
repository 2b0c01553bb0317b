package observe

import (
	"math"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
)

// Settings are what is shown of how a process uses a policy. The zero value is that it has not told.
type Settings struct {
	Mode               driver.Mode
	Limit              int
	Wait, TTL, MaxHold time.Duration
	Strict             bool
	Overridden         Fields
}

// Fields are fields of a policy that a configuration may set.
type Fields uint8

var fields = [...]string{"Wait", "TTL", "MaxHold", "Mode", "Limit", "Release"}

// FieldsOf are those that are set, in the order of their names.
func FieldsOf(set ...bool) Fields { return Fields(flags(set...)) }

// Names returns the names of the fields.
func (f Fields) Names() (all []string) {
	for i, name := range fields {
		if f&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}

// SettingsOf are the settings of a policy's record.
func (h *Hub) SettingsOf(r *Record) (s Settings) {
	if t := r.Terms; t != nil {
		s = Settings{t.Mode, t.Limit, t.Wait, t.TTL, t.MaxHold, t.Strict, h.Overridden(t.Name)}
	}
	return s
}

func (w *writer) settings(s *Settings) {
	if s.TTL == 0 {
		w.number(0)
		return
	}
	w.number(uint64(s.Overridden)<<4 | uint64(s.Mode)<<2 | flags(true, s.Strict))
	w.number(uint64(s.Limit))
	w.duration(s.Wait)
	w.duration(s.TTL)
	w.duration(s.MaxHold)
}

// Settings reads the settings of a policy.
func (r *Reader) Settings() (s Settings) {
	set := r.AtMost(math.MaxUint8 << 4)
	if set&1 == 0 {
		return s
	}
	s.Strict, s.Mode, s.Overridden = set&2 != 0, ModeOf(set>>2&3), Fields(set>>4)
	s.Limit = r.Int()
	s.Wait, s.TTL, s.MaxHold = WaitOf(r.Duration()), r.Duration(), r.Duration()
	return s
}

// WaitOf is a policy's Wait that somebody told of.
func WaitOf(d time.Duration) time.Duration {
	if d >= Longest {
		return manager.Forever
	}
	return d
}

// ModeOf is a mode that somebody told of.
func ModeOf(n uint64) driver.Mode {
	if n > uint64(driver.Semaphore) {
		return driver.Exclusive
	}
	return driver.Mode(n)
}
