package main

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
			r.add(warn, "member", s.reason(err), "the quorum may not bear that another member fails", "start it, or see why it cannot be reached at the address that it advertises")
			continue
		}
		reached++
		leaders[st.Leader] = true
		revision = max(revision, st.Header.Revision)
		etcdVersion(r, st.Version)
		if s.at.user != "" && atLeast(st.Version, 3, 4) && !atLeast(st.Version, 3, 5) {
			r.add(warn, "login", "etcd "+st.Version, "once nothing was asked for the life of its token, 5 minutes by default, a client with a user is refused for ever", "pass each program's client to etcdlock.KeepLoggedIn, or use 3.5.13 or later")
		}
		r.judge(st.DbSize < etcdMuch, warn, "size", fmt.Sprintf("%d MiB", st.DbSize>>20), "at its quota, 2 GiB unless --quota-backend-bytes says otherwise, etcd takes no writes, and nobody gets a lock", "compact and defragment: etcdctl compact, etcdctl defrag")
	}
	quorum := voters/2 + 1
	f.judge(reached >= quorum && len(leaders) == 1 && !leaders[0], bad, "quorum", fmt.Sprintf("%d of %d members answer, %d are needed", reached, voters, quorum),
		"without a majority and a leader nobody acquires", "bring members back")
	f.judge(voters >= 3 && voters%2 == 1, warn, "members", fmt.Sprint(voters), "one member or two bear no failure, and an even number no more than one less", "use three or five members, on machines of their own")
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
