package idempotent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Memory keeps records in the memory of this process: for a program that is one process, and for
// tests, where time goes by package testing/synctest. It is safe for concurrent use and starts no
// goroutine. Contexts are not looked at: nothing waits. What has ended is freed while others begin.
type Memory struct {
	mu      sync.Mutex
	most    int
	records map[string]*memoryRecord
}

var _ Store = (*Memory)(nil)

type memoryRecord struct {
	Record      // without Alone
	gone   bool // given up
	alone  time.Time
	end    time.Time
}

// NewMemory returns an empty Memory for at most so many records. A call that would begin one more fails:
// a record that was dropped to make room would let its call run twice. It panics if most is below 1.
func NewMemory(most int) *Memory {
	if most < 1 {
		panic(fmt.Errorf("idempotent.NewMemory(%d): use 1 or more, for as many calls as come while one record is kept", most))
	}
	return &Memory{most: most, records: make(map[string]*memoryRecord)}
}

var errFull = errors.New("idempotent: the memory has as many records as it may; make it larger, or keep records for less time")

// Begin begins the call of a key. The error is [ErrSuperseded], one of [Claim.Validate], or says
// that there is no room.
func (m *Memory) Begin(_ context.Context, key string, c Claim) (Record, error) {
	if err := c.Validate(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r := m.at(key, now)
	switch {
	case r == nil && !m.room(now):
		return Record{}, errFull
	case r == nil, r.gone && r.Run != c.Run:
		m.records[key] = begun(c, now)
		return Record{}, nil
	case r.gone, c.Token > 0 && r.State == Begun && r.Token > c.Token:
		return Record{}, ErrSuperseded
	}
	before := r.Record
	before.Answer = bytes.Clone(r.Answer)
	before.Alone = max(r.alone.Sub(now), 0)
	if r.State == Begun && c.Token > 0 && r.Fingerprint == c.Fingerprint && (r.Run == c.Run || before.Alone == 0) {
		m.records[key] = begun(c, now)
	}
	return before, nil
}

func begun(c Claim, now time.Time) *memoryRecord {
	r := &memoryRecord{Record: Record{State: Begun, Run: c.Run, Token: c.Token, Fingerprint: c.Fingerprint}, end: now.Add(c.Keep)}
	if c.Token == 0 {
		r.alone = now.Add(c.Alone)
	}
	return r
}

// Finish stores a copy of the answer. The error is one of [Claim.Validate], or says that there is
// no room.
func (m *Memory) Finish(_ context.Context, key string, c Claim, answer []byte) (bool, error) {
	if err := c.Validate(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r := m.at(key, now)
	switch {
	case r == nil && !m.room(now):
		return false, errFull
	case r == nil:
		r = begun(c, now)
		m.records[key] = r
	case r.gone || r.Run != c.Run:
		return false, nil
	case r.State == Done:
		return true, nil
	}
	r.State, r.Token, r.Answer = Done, max(r.Token, c.Token), append([]byte{}, answer...)
	r.alone, r.end = time.Time{}, now.Add(c.Keep)
	return true, nil
}

// GiveUp removes what c.Run has begun. The error is one of [Claim.Validate].
func (m *Memory) GiveUp(_ context.Context, key string, c Claim) error {
	if err := c.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if r := m.at(key, now); r != nil && r.Run == c.Run && r.State == Begun && !r.gone {
		r.gone, r.end = true, now.Add(c.Alone)
	}
	return nil
}

// Forget removes a record. The error is nil.
func (m *Memory) Forget(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
	return nil
}

// at returns what is there of a key, nil if nothing is. m.mu is held.
func (m *Memory) at(key string, now time.Time) *memoryRecord {
	r := m.records[key]
	if r != nil && !now.Before(r.end) {
		delete(m.records, key)
		return nil
	}
	return r
}

// room frees some of what has ended, all of it if there is no room otherwise, and reports whether there is. m.mu is held.
func (m *Memory) room(now time.Time) bool {
	looked := 0
	for key, r := range m.records {
		if !now.Before(r.end) {
			delete(m.records, key)
		}
		if looked++; looked >= 8 && len(m.records) < m.most {
			break
		}
	}
	return len(m.records) < m.most
}
