// Package watch shows what the engines of a namespace do at the moment: who holds which key, who
// waits for it and for how long, and what happened lately. It is for a page or a tool that a person
// looks at.
//
//	w, err := watch.New(ctx, locks)
//	…
//	for range w.Changed() {
//		show(w.View())
//	}
//
// Package middleware/lockpage is such a page.
//
// Every process reports what it does while somebody watches, whether or not it imports this package:
// an operator sees them all. What a program compiles for that is small, and does nothing until
// somebody asks. Engines report to each other by way of redislock and memlock; on other stores a view
// has its own process alone, and View.Alone says so.
//
// # Files
//
// watch.go begins and ends a watch and makes views; view.go has what is in one; keys.go chooses what
// is shown of each key; others.go keeps, and report.go reads, what other processes report.
package watch
