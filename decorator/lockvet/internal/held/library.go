// Package held knows where a program holds a distributed lock: the calls that acquire and
// release one in lockaround and in other libraries, the functions that run inside of one, and
// the paths through a function on which a lease is held.
//
// # Files
//
// library.go knows the calls that acquire and release; section.go the functions that run inside of a
// lock. grant.go finds where a lease is acquired and what refers to it; path.go follows it through the
// function.
package held

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// Core is the path of the package that has lockaround's engine.
const Core = "github.com/lockaround/lockaround/core"

// Library is a package whose locks are known. Calls go by their names: Type.Method, or the
// name of a function.
type Library struct {
	Name     string // as a message calls it
	paths    []string
	acquires map[string]Acquire
	releases []string
	inspects []string // methods of what is held that neither release it nor pass it on
	hears    []string // those of them by which a caller learns that the lease has ended, or moves its end

	Bound string // how a call is made to end with the lease, for a message
}

// Acquire is a call that acquires a lock.
type Acquire struct {
	Name    string
	Library *Library
	Lease   int  // the result that is the lease; none if the receiver holds it
	Err     int  // the result that is the error
	Session bool // another object, which is not seen, may release the lock
}

// none is the lease's place in the results of a method whose receiver holds the lock.
const none = -1

// Lockaround is this module.
var Lockaround = &Library{
	Name:  "lockaround",
	paths: []string{Core},
	acquires: map[string]Acquire{
		"Engine.Acquire": {Lease: 0, Err: 1},
		"Guard.Acquire":  {Lease: 0, Err: 1},
		"Guard.Enter":    {Lease: 0, Err: 1},
	},
	releases: []string{"Lease.Release", "Section.Leave"},
	inspects: []string{"Lease.Key", "Lease.Keys", "Lease.Token", "Lease.TokenOf", "Lease.Deadline", "Lease.Contended", "Section.Lease", "Lease.Downgrade"},
	hears:    []string{"Lease.Done", "Lease.Err", "Lease.Check", "Lease.Extend", "Lease.Context", "Section.Context"},
}

var libraries = []*Library{
	Lockaround,
	{
		Name:  "redsync",
		paths: []string{"github.com/go-redsync/redsync", "gopkg.in/redsync.v1"},
		acquires: map[string]Acquire{
			"Mutex.Lock":           {Lease: none},
			"Mutex.LockContext":    {Lease: none},
			"Mutex.TryLock":        {Lease: none},
			"Mutex.TryLockContext": {Lease: none},
		},
		releases: []string{"Mutex.Unlock", "Mutex.UnlockContext"},
		inspects: []string{"Mutex.Name"}, // not Value, by which another mutex releases this one
		hears:    []string{"Mutex.Until", "Mutex.Extend", "Mutex.ExtendContext", "Mutex.Valid", "Mutex.ValidContext"},
		Bound:    "pass a context that ends with the lease, as of context.WithDeadline(ctx, mutex.Until())",
	},
	{
		Name:  "bsm/redislock",
		paths: []string{"github.com/bsm/redislock"},
		acquires: map[string]Acquire{
			"Client.Obtain":      {Lease: 0, Err: 1},
			"Client.ObtainMulti": {Lease: 0, Err: 1},
			"Obtain":             {Lease: 0, Err: 1},
			"ObtainMulti":        {Lease: 0, Err: 1},
		},
		releases: []string{"Lock.Release"},
		inspects: []string{"Lock.Key", "Lock.Metadata"}, // not Token, with which the lock may be obtained again
		hears:    []string{"Lock.TTL", "Lock.Refresh"},
		Bound:    "pass a context that ends with the lease, as of context.WithTimeout(ctx, ttl)",
	},
	{
		Name: "etcd's concurrency",
		paths: []string{
			"go.etcd.io/etcd/client/v3/concurrency", "go.etcd.io/etcd/v3/clientv3/concurrency",
			"go.etcd.io/etcd/clientv3/concurrency", "github.com/coreos/etcd/clientv3/concurrency",
		},
		acquires: map[string]Acquire{
			"Mutex.Lock":        {Lease: none, Session: true},
			"Mutex.TryLock":     {Lease: none, Session: true},
			"Election.Campaign": {Lease: none, Session: true},
		},
		releases: []string{"Mutex.Unlock", "Election.Resign"},
		inspects: []string{"Mutex.Key", "Mutex.Header", "Election.Key", "Election.Rev", "Election.Header", "Election.Leader", "Election.Proclaim", "Election.Observe"},
		hears:    []string{"Mutex.IsOwner", "Session.Done", "Session.Ctx"},
		Bound:    "pass a context that is cancelled when session.Done() is closed",
	},
}

// libraryOf returns the library that a package belongs to; nil if it is none of them.
func libraryOf(p *types.Package) *Library {
	if p == nil {
		return nil
	}
	path := p.Path()
	if i := strings.LastIndex(path, "/vendor/"); i >= 0 {
		path = path[i+len("/vendor/"):]
	}
	bare := path
	if i := strings.LastIndex(path, "/v"); i >= 0 && strings.Trim(path[i+2:], "0123456789") == "" {
		bare = path[:i]
	}
	for _, l := range libraries {
		for _, p := range l.paths {
			if p == path || p == bare {
				return l
			}
		}
	}
	return nil
}

// Imports reports whether a package imports one of the libraries, or another package of
// lockaround that puts locks around functions, be it by way of other packages: a mutex may be a
// variable of one of those.
func Imports(p *types.Package) bool {
	seen := map[*types.Package]bool{}
	var imports func(*types.Package) bool
	imports = func(p *types.Package) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		return libraryOf(p) != nil || surface(p) || slices.ContainsFunc(p.Imports(), imports)
	}
	return slices.ContainsFunc(p.Imports(), imports)
}

// called returns the library and the name of what a call calls; nil if that is in none.
func called(info *types.Info, call *ast.CallExpr) (*Library, string) {
	fn := typeutil.StaticCallee(info, call)
	if fn == nil {
		return nil, ""
	}
	l := libraryOf(fn.Pkg())
	if l == nil {
		return nil, ""
	}
	return l, NameOf(fn)
}

// NameOf is Type.Method, or the name of a function.
func NameOf(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return fn.Name()
	}
	t := types.Unalias(recv.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name() + "." + fn.Name()
	}
	return fn.Name()
}

// acquireOf returns the acquisition that a call is.
func acquireOf(info *types.Info, call *ast.CallExpr) (Acquire, bool) {
	l, name := called(info, call)
	if l == nil {
		return Acquire{}, false
	}
	a, ok := l.acquires[name]
	a.Name, a.Library = name, l
	return a, ok
}
