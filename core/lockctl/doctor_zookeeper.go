package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/zklock"
)

// doctorZooKeeper looks at each server of the URL.
func (s *session) doctorZooKeeper(ctx context.Context, f findings) {
	alone, told := false, false
	for _, addr := range s.zk.servers {
		r := findings{node: addr, all: f.all}
		if len(s.zk.servers) == 1 {
			r.node = ""
		}
		status, err := s.fourLetters(ctx, addr, "srvr")
		if err != nil {
			r.add(warn, "server", s.reason(err), "the ensemble may not bear that another server fails", "start it, or see why it cannot be reached")
			continue
		}
		if !strings.Contains(status, "\nMode: ") {
			r.mute("version", strings.TrimSpace(status), "put srvr and conf into 4lw.commands.whitelist; the version has to be 3.5.3 or later")
			continue
		}
		version := between(status, "version: ", ",")
		r.judge(atLeast(version, 3, 5, 3), bad, "version", "ZooKeeper "+version, "keys are containers, which older servers do not delete", "use 3.5.3 or later")
		told = true
		alone = alone || between(status, "\nMode: ", "\n") == "standalone"
		s.zkSettings(ctx, r, addr)
	}
	if !told {
		f.unasked("no server has told its mode", "ensemble")
	} else {
		f.judge(!alone, warn, "ensemble", map[bool]string{true: "one server alone", false: "several servers"}[alone], "while it is down nobody acquires, and with its disk the locks and the order of tokens are lost", "use three or five servers, on machines of their own")
	}
	s.each(ctx, f, check{name: "nodes", run: s.zkNodes})
	f.mute("clock", "ZooKeeper tells its time in no answer", "run chrony or ntpd; the remaining times that lockctl prints compare this machine's clock with the leader's, and locks compare none")
}

// zkSettings judges the settings of a server.
func (s *session) zkSettings(ctx context.Context, r findings, addr string) {
	text, err := s.fourLetters(ctx, addr, "conf")
	longest := between(text, "maxSessionTimeout=", "\n")
	if err != nil || longest == "" {
		r.mute("session time-out", strings.TrimSpace(text), "put conf into 4lw.commands.whitelist, or see that maxSessionTimeout is 40000 or more")
		return
	}
	most, _ := strconv.Atoi(longest)
	tick, _ := strconv.Atoi(between(text, "tickTime=", "\n"))
	least, _ := strconv.Atoi(between(text, "minSessionTimeout=", "\n"))
	asked := int(zklock.DefaultSessionTimeout / time.Millisecond)
	r.judge(most >= asked, warn, "session time-out", fmt.Sprintf("%d to %d ms", least, most),
		fmt.Sprintf("drivers ask for %d ms and get %d; a holder gives up when no server has answered for two fifths of that", asked, most), "set maxSessionTimeout to 40000, or take another time by WithSessionTimeout on purpose")
	r.judge(least >= 2*tick && tick > 0, bad, "tick", fmt.Sprintf("tickTime %d ms, minSessionTimeout %d ms", tick, least),
		"the deadlines of holders assume that a session lasts two ticks or more", "leave minSessionTimeout at its default, two ticks")
	if n, err := strconv.Atoi(between(text, "maxClientCnxns=", "\n")); err == nil {
		r.judge(n == 0 || n >= 10, warn, "connections", fmt.Sprintf("maxClientCnxns %d from one address", n), "each engine has a connection of its own; a host with many processes is refused", "set maxClientCnxns to what one host needs, or 0")
	}
}

// jute is the default of jute.maxbuffer, which bounds an answer of the servers.
const jute = 0xfffff

// zkNodes judges the root of the locks.
func (s *session) zkNodes(ctx context.Context, f findings) {
	conn, _, err := zk.Connect(s.zk.servers, 10*time.Second, zk.WithLogger(noZooKeeperLog{}), zk.WithLogInfo(false))
	if err != nil {
		f.mute("nodes", s.reason(err), "see that the servers are reached")
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()
	if len(s.zk.auth) > 0 {
		if err := conn.AddAuth("digest", s.zk.auth); err != nil {
			f.mute("nodes", s.reason(err), "see that the user and the password are right")
			return
		}
	}
	names, _, err := conn.Children(s.zk.root)
	if err == zk.ErrNoNode {
		f.add(good, "nodes", s.zk.root+" is not there yet; the first lock creates it", "", "")
		return
	}
	if ctx.Err() != nil {
		f.unasked("no answer within "+s.timeout.String(), "nodes")
		return
	}
	if err != nil {
		f.mute("nodes", s.reason(err), "permit reading "+s.zk.root)
		return
	}
	size := 0
	for _, name := range names {
		size += 4 + len(name)
	}
	f.judge(size < jute/2, warn, "jute.maxbuffer", fmt.Sprintf("the list of %d keys has %d bytes", len(names), size), "a client with the default jute.maxbuffer, 1 MiB, cannot list them soon; locks do not list them", "raise jute.maxbuffer on servers and clients that list")
	acl, _, err := conn.GetACL(s.zk.root)
	if err != nil {
		f.mute("permissions", s.reason(err), "permit reading the ACL of "+s.zk.root)
		return
	}
	open := false
	for _, a := range acl {
		open = open || a.Scheme == "world" && a.Perms&(zk.PermCreate|zk.PermDelete) != 0
	}
	f.judge(!open, warn, "permissions", map[bool]string{true: "everybody may create and delete nodes in " + s.zk.root, false: "not everybody may write to " + s.zk.root}[open], "whoever reaches the servers may end the locks", "use WithAuth and WithACL(zk.AuthACL(zk.PermAll)...) in all processes")
}

// fourLetters sends a command of four letters to a server.
func (s *session) fourLetters(ctx context.Context, addr, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // an answer that comes late is cut
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<20))
	return string(answer), err
}

// between returns what stands between two texts.
func between(s, before, after string) string {
	_, s, found := strings.Cut(s, before)
	if !found {
		return ""
	}
	s, _, _ = strings.Cut(s, after)
	return s
}
