package analyzers

import (
	"fmt"
	"go/token"

	"golang.org/x/tools/go/analysis"

	"github.com/lockaround/lockaround/decorator/lockvet/internal/held"
)

// Result finds acquisitions whose outcome is not used: the error or the lease is dropped, the
// function goes on although the lock was not granted, or a path through it leaves the lock held.
var Result = &analysis.Analyzer{
	Name: "lockresult",
	URL:  url,
	Doc: `report locks whose error or lease is dropped, or that a path does not release

Wrong:

	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	if sold(sku) {
		return errSold // the lease is not released
	}
	defer lease.Release(ctx)

The key stays taken: with lockaround for as long as the process lives, since the lease is
renewed, and with other libraries until its TTL ends. Every other request for it fails or waits.
Where the error is dropped, or logged and no more, the code below runs without the lock, at the
very time at which somebody else has it.

Right:

	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	if sold(sku) {
		return errSold
	}

or locks.Do, which releases by itself. The check knows Engine.Acquire, Guard.Acquire and
Guard.Enter, and Lock, TryLock, Obtain and Campaign of redsync, bsm/redislock and etcd's
concurrency package. It says nothing of a lock that is in a field, is returned or passed on,
unless the function itself releases it on another path.`,
	Requires: []*analysis.Analyzer{held.Analyzer},
	Run:      runResult,
}

func runResult(pass *analysis.Pass) (any, error) {
	for _, f := range pass.ResultOf[held.Analyzer].(*held.Package).Functions {
		for _, g := range f.Grants {
			reportDropped(pass, g)
			for _, fault := range g.Faults() {
				reportFault(pass, g, fault)
			}
		}
	}
	return nil, nil
}

func reportDropped(pass *analysis.Pass, g *held.Grant) {
	switch {
	case g.ErrDropped:
		pass.Reportf(g.Call.Pos(), "the error of %s is dropped: what follows runs without the lock if it is not granted; return on an error", g.Name)
	case g.LeaseDropped && g.Library == held.Lockaround:
		pass.Reportf(g.Call.Pos(), "the lease of %s is dropped: it is renewed, and the key stays taken, for as long as the process lives; release it, or use Do", g.Name)
	case g.LeaseDropped:
		pass.Reportf(g.Call.Pos(), "the lock of %s is dropped, so nothing can release it: the key stays taken until its TTL ends; keep it, and release it", g.Name)
	}
}

func reportFault(pass *analysis.Pass, g *held.Grant, fault held.Fault) {
	line := pass.Fset.Position(fault.At).Line
	switch fault.Kind {
	case held.Kept:
		text := "the path that ends at line %d"
		if line == pass.Fset.Position(g.Call.Pos()).Line && !g.Returned {
			text = "the path that comes back to line %d"
		}
		report(pass, g.Call.Pos(), fault.At, "the lock of %s is not released on "+text+"; defer the release once the lock is granted", g.Name, line)
	case held.Unlocked:
		report(pass, g.Call.Pos(), fault.At, "the lock of %s may not have been granted at line %d, which releases it: the path of its error goes on; return there", g.Name, line)
	}
}

// report reports what is wrong at pos and where it shows.
func report(pass *analysis.Pass, pos, shows token.Pos, format string, a ...any) {
	pass.Report(analysis.Diagnostic{
		Pos: pos, Message: fmt.Sprintf(format, a...),
		Related: []analysis.RelatedInformation{{Pos: shows, Message: "here"}},
	})
}
