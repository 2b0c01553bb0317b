package etcdlock_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

const (
	methodTxn       = "/etcdserverpb.KV/Txn"
	methodDelete    = "/etcdserverpb.KV/DeleteRange"
	methodGrant     = "/etcdserverpb.Lease/LeaseGrant"
	methodRevoke    = "/etcdserverpb.Lease/LeaseRevoke"
	methodKeepAlive = "/etcdserverpb.Lease/LeaseKeepAlive"
)

// takes matches the transaction by which a place is taken.
func takes(r etcdtest.Request) bool {
	return r.Method == methodTxn && (bytes.Contains(r.Body, []byte(" h ")) || bytes.Contains(r.Body, []byte(" w 0")))
}

// parts matches the request by which a place is given up.
func parts(r etcdtest.Request) bool {
	return r.Method == methodDelete || all(txn(r).GetSuccess(), func(op *pb.RequestOp) bool { return op.GetRequestDeleteRange() != nil })
}

// isTurn matches the transaction by which a waiter is granted an exclusive lease.
func isTurn(r etcdtest.Request) bool {
	t := txn(r)
	return len(t.GetCompare()) > 0 && all(t.GetSuccess(), func(op *pb.RequestOp) bool { return op.GetRequestRange() != nil })
}

// txn returns a request that is a transaction, and otherwise nil.
func txn(r etcdtest.Request) *pb.TxnRequest {
	var t pb.TxnRequest
	if r.Method != methodTxn || len(r.Body) < 5 || proto.Unmarshal(r.Body[5:], &t) != nil {
		return nil
	}
	return &t
}

// all reports whether there are operations, all of that kind.
func all(ops []*pb.RequestOp, kind func(*pb.RequestOp) bool) bool {
	return len(ops) > 0 && !slices.ContainsFunc(ops, func(op *pb.RequestOp) bool { return !kind(op) })
}

func is(methods ...string) func(etcdtest.Request) bool {
	return func(r etcdtest.Request) bool {
		for _, m := range methods {
			if r.Method == m {
				return true
			}
		}
		return false
	}
}

// requests match what a session sends for each kind of request.
var requests = map[drivertest.Op]func(etcdtest.Request) bool{
	drivertest.OpAcquire: takes,
	drivertest.OpRenew:   is(methodKeepAlive, methodTxn),
	drivertest.OpRelease: parts,
}

// harness reaches a server through a proxy of its own.
func harness(t *testing.T, server *testservers.Server) *drivertest.Harness {
	proxy := etcdtest.NewProxy(t, server.Addr())
	requests := maps.Clone(requests)
	if strings.Contains(t.Name(), "GivenUp") {
		// What is given up soon may not get any further on a busy machine.
		requests[drivertest.OpAcquire] = func(r etcdtest.Request) bool { return r.Method == methodGrant || takes(r) }
	}
	if strings.Contains(t.Name(), "NobodyIsTooMany") {
		// It wants to see some who hold together, for a tenth of a millisecond each. They
		// are granted the key together, but each by a transaction of its own.
		proxy.Set(etcdtest.State{Bunch: 10 * time.Millisecond})
	}
	return &drivertest.Harness{
		Driver:       etcdlock.New(etcdtest.Client(t, proxy.Addr())),
		Peer:         etcdlock.New(etcdtest.Client(t, server.Addr())),
		Stall:        proxy.Stall,
		DropReply:    func(op drivertest.Op) func() bool { return proxy.DropReply(requests[op]) },
		DelayReplies: proxy.DelayReplies,
		LosePushes:   proxy.LosePushes,
	}
}

// alone are the checks that restart the server, empty it or fill it, and those whose time-outs are
// so short that the load of others must not be in the way: they do not share it.
var alone = []string{"Restart", "LossOfData", "Silence", "SilentStore", "StoresRefusal"}

func TestConformance(t *testing.T) { drivertest.Run(t, harnesses(t)) }

func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	endurance.Run(t, harnesses(t))
}

// harnesses returns what makes harnesses on one server, or on a server each.
func harnesses(t *testing.T) func(t *testing.T) *drivertest.Harness {
	shared := testservers.Etcd(t)
	return func(t *testing.T) *drivertest.Harness {
		for _, word := range alone {
			if strings.Contains(t.Name(), word) {
				server := testservers.Etcd(t)
				h := harness(t, server)
				h.Restart = server.Restart
				h.Wipe = func() { wipe(t, server) }
				h.Refuse = func() (string, func()) { return fill(t, server) }
				return h
			}
		}
		return harness(t, shared)
	}
}

// fill has the server refuse what takes room, as if it had none, until restore is called.
func fill(t *testing.T, server *testservers.Server) (cause string, restore func()) {
	t.Helper()
	c := etcdtest.Client(t, server.Addr())
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // t's context may be over
		defer cancel()
		st, err := c.Status(ctx, server.Addr())
		if err == nil {
			_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: st.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
		}
		if err != nil {
			t.Error(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	return "database space exceeded", func() { alarm(pb.AlarmRequest_DEACTIVATE) }
}

// wipe removes all keys and leases.
func wipe(t *testing.T, server *testservers.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := etcdtest.Client(t, server.Addr())
	if _, err := c.Delete(ctx, "", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	all, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if _, err := c.Revoke(ctx, l.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal(err)
		}
	}
}
