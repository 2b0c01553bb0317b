package server

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Meter reads what a store has done since it was started. It may be sent to another process.
type Meter struct {
	Kind  Kind     `json:"kind"`
	Addrs []string `json:"addrs"`
	Pids  []int    `json:"pids"`
}

// Load is what a store has done.
type Load struct {
	Requests  int64         // -1 if its kind does not count them
	Processor time.Duration // of all cores; 0 if the system does not say
}

// Meter returns the meter of a server or of its members.
func (s *Server) Meter(kind Kind) Meter {
	m := Meter{Kind: kind, Addrs: s.Addrs()}
	_ = s.each(func(d *servers.Server) error {
		m.Pids = append(m.Pids, d.Pid())
		return nil
	})
	return m
}

// requestsOf is how the servers of a kind count what they are asked.
var requestsOf = map[Kind]func(ctx context.Context, addr string) (int64, error){
	Etcd: requestsOfEtcd, Redis: requestsOfRedis, Three: requestsOfRedis,
	SingleZooKeeper: requestsOfZooKeeper, MariaDB: requestsOfMariaDB,
}

// Read reads it.
func (m Meter) Read(ctx context.Context) (l Load, err error) {
	l.Processor = processorOf(m.Pids)
	count := requestsOf[m.Kind]
	if count == nil {
		l.Requests = -1
		return l, nil
	}
	for _, addr := range m.Addrs {
		n, err := count(ctx, addr)
		if err != nil {
			return l, fmt.Errorf("how many requests %s has had: %w", addr, err)
		}
		l.Requests += n
	}
	return l, nil
}

// tick is the unit of /proc/*/stat: 1/100 s in every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processorOf is what these processes and those that they started have used, by Linux.
func processorOf(pids []int) (used time.Duration) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		// The second field is a name in brackets, which may hold anything.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) < 15 {
			continue
		}
		for _, field := range f[11:15] { // itself and its children that have ended, in user and kernel mode
			n, _ := strconv.ParseInt(field, 10, 64)
			used += time.Duration(n) * tick
		}
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		var children []int
		for _, path := range threads {
			text, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(text)) {
				child, _ := strconv.Atoi(field)
				children = append(children, child)
			}
		}
		used += processorOf(children)
	}
	return used
}
