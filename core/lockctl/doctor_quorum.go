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
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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
			r.add(warn, "server", s.reason(err), "the ensemble may not survive the failure of another server", "start it, or see why it cannot be reached")
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

// doctorEtcd looks at each member.
func (s *session) doctorEtcd(ctx context.Context, f findings) {
	first, cancel := context.WithTimeout(ctx, s.timeout)
	members, err := s.etcd.MemberList(first)
	cancel()
	if err != nil {
		f.mute("members", s.explained(ctx, err).Error(), "see that the endpoints of the URL are reached")
		f.unasked("the members are not known", "version", "quorum", "alarms", "compaction", "authentication")
		return
	}
	voters, reached, leaders := 0, 0, make(map[uint64]bool)
	var revision int64
	for _, m := range members.Members {
		if m.IsLearner {
			continue
		}
		voters++
		urls := m.ClientURLs
		if len(urls) == 0 {
			continue
		}
		r := findings{node: strings.TrimPrefix(strings.TrimPrefix(urls[0], "http://"), "https://"), all: f.all}
		one, cancel := context.WithTimeout(ctx, s.timeout)
		st, err := s.etcd.Status(one, urls[0])
		cancel()
		if err != nil {
			r.add(warn, "member", s.reason(err), "the quorum may not survive the failure of another member", "start it, or see why it cannot be reached at the address that it advertises")
			continue
		}
		reached++
		leaders[st.Leader] = true
		revision = max(revision, st.Header.Revision)
		etcdVersion(r, st.Version)
		if s.at.user != "" && atLeast(st.Version, 3, 4) && !atLeast(st.Version, 3, 5) {
			r.add(warn, "login", "etcd "+st.Version, "a client with a user that is idle for the life of its token, 5 minutes by default, is refused for good", "pass each program's client to etcdlock.KeepLoggedIn, or use 3.5.13 or later")
		}
		r.judge(st.DbSize < etcdMuch, warn, "size", fmt.Sprintf("%d MiB", st.DbSize>>20), "at its quota, 2 GiB unless --quota-backend-bytes says otherwise, etcd takes no writes, and nobody gets a lock", "compact and defragment: etcdctl compact, etcdctl defrag")
	}
	quorum := voters/2 + 1
	f.judge(reached >= quorum && len(leaders) == 1 && !leaders[0], bad, "quorum", fmt.Sprintf("%d of %d members answer, %d are needed", reached, voters, quorum),
		"without a majority and a leader nobody acquires", "bring members back")
	f.judge(voters >= 3 && voters%2 == 1, warn, "members", fmt.Sprint(voters), "one or two members survive no failure, and an even number survives no more failures than one member fewer", "use three or five members, on machines of their own")
	s.each(ctx, f,
		check{name: "alarms", run: s.etcdAlarms},
		check{name: "compaction", run: func(ctx context.Context, f findings) { s.etcdHistory(ctx, f, members.Members, revision) }},
		check{name: "authentication", run: s.etcdAuth},
	)
	f.add(good, "clock", "not needed: leases are counted by the members' monotonic clocks, and tokens are revisions", "", "")
}

// etcdMuch is three quarters of the default quota.
const etcdMuch = 3 << 29

// etcdVersion judges a version by what etcdlock's documentation says.
func etcdVersion(f findings, v string) {
	old34 := atLeast(v, 3, 4) && !atLeast(v, 3, 4, 31)
	old35 := atLeast(v, 3, 5) && !atLeast(v, 3, 5, 13)
	switch {
	case !atLeast(v, 3, 4):
		f.add(bad, "version", "etcd "+v, "the driver needs 3.4", "use 3.5.13 or later")
	case old34 || old35:
		f.add(warn, "version", "etcd "+v, "before 3.4.31 and 3.5.13 a leader that was stopped and goes on may answer a renewal that does not count", "use 3.4.31, 3.5.13 or later")
	default:
		f.add(good, "version", "etcd "+v, "", "")
	}
}

// etcdAuth judges whether clients have to say who they are. Before 3.5 no answer says so, but one
// without a user says that they need not.
func (s *session) etcdAuth(ctx context.Context, f findings) {
	on := false
	status, err := s.etcd.AuthStatus(ctx)
	switch {
	case err == nil:
		on = status.Enabled
	case s.at.user == "":
		_, err = s.etcd.Get(ctx, "la1/", clientv3.WithLimit(1))
	}
	if err != nil {
		f.mute("authentication", s.reason(err), "ask by etcdctl auth status")
		return
	}
	f.judge(on, warn, "authentication", map[bool]string{true: "on", false: "off"}[on], "whoever reaches etcd may end the locks in it", "etcdctl auth enable, and etcdctl role grant-permission locks readwrite la1/ --prefix")
}

func (s *session) etcdAlarms(ctx context.Context, f findings) {
	alarms, err := s.etcd.AlarmList(ctx)
	if err != nil {
		f.mute("alarms", s.reason(err), "ask as root")
		return
	}
	var raised []string
	for _, a := range alarms.Alarms {
		raised = append(raised, a.Alarm.String())
	}
	f.judge(len(raised) == 0, bad, "alarms", either(raised, strings.Join(raised, ", "), "none"), "while an alarm is raised etcd takes no writes, and nobody gets a lock", "mend the cause (NOSPACE: compact and defragment), then etcdctl alarm disarm")
}

// etcdMany is a history that some auto-compaction would have shortened.
const etcdMany = 100_000

// etcdHistory judges how far back the history goes. No answer has the setting itself.
func (s *session) etcdHistory(ctx context.Context, f findings, members []*etcdserverpb.Member, revision int64) {
	var hash *clientv3.HashKVResponse
	err := fmt.Errorf("no member has an address")
	for _, m := range members {
		if len(m.ClientURLs) > 0 {
			if hash, err = s.etcd.HashKV(ctx, m.ClientURLs[0], 0); err == nil {
				break
			}
		}
	}
	if err != nil {
		f.mute("compaction", s.reason(err), "see that --auto-compaction-retention is set")
		return
	}
	since := revision - max(0, hash.CompactRevision)
	f.judge(since < etcdMany, warn, "compaction", fmt.Sprintf("the history has %d revisions", since), "each acquisition and release adds one, until the quota is used up and etcd takes no writes", "start etcd with --auto-compaction-retention=1h")
}
