package core

import "context"

// Panel is a small table about something that uses locks, such as a queue, a job or a
// leader, for a page or a tool that shows it to operators. It holds no keys, payloads or
// secrets: who may look at it is for the page to say.
type Panel struct {
	Title   string   // what it is about, such as "serial refund"
	Columns []string // names of the columns

	// Rows are the table. Each row has a cell for each column: a string, a bool, a number, a
	// time.Time or a time.Duration; other values are shown as fmt prints them, and nil and zero
	// times as none.
	Rows [][]any

	Err error // why there is no table, if there is none; its text is shown to operators
}

// Paneler has a panel. Panel is called while somebody looks, about once in two seconds, and
// may ask a store; it returns when ctx ends. It is safe for concurrent use.
type Paneler interface {
	Panel(ctx context.Context) Panel
}
