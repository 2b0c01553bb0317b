// Package ensemble runs servers of etcd and ZooKeeper, alone or several that are one store.
package ensemble

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Member is a server on a free port of 127.0.0.1.
type Member struct {
	*daemon.Daemon
	Addr    string // host and port for clients
	Version string
	folder  string
}

// start starts n members, each in a folder of its own below the one that is given, and
// returns when all answer. configure is told the ports of all, so many for each.
func start(ctx context.Context, folder string, n, each int, configure func(m *Member, i int, ports []string) error) ([]*Member, error) {
	// Free ports may be taken by somebody else before the servers have them.
	for tries := 1; ; tries++ {
		ports, err := process.FreePorts(n * each)
		if err != nil {
			return nil, err
		}
		var all []*Member
		for i := 0; i < n && err == nil; i++ {
			m := &Member{Daemon: &daemon.Daemon{}}
			if m.folder, err = os.MkdirTemp(folder, "member-"); err != nil {
				break
			}
			if err = configure(m, i, ports); err == nil {
				m.Log = filepath.Join(m.folder, "log")
				err = m.Spawn()
			}
			all = append(all, m)
		}
		for i := 0; i < n && err == nil; i++ {
			err = all[i].Await(ctx, all[i].Ready)
		}
		if err == nil {
			return all, nil
		}
		for _, m := range all {
			err = errors.Join(err, m.Kill())
		}
		if tries == 3 || ctx.Err() != nil {
			return nil, err
		}
	}
}
