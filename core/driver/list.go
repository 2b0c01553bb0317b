package driver

import "context"

// Lister is an optional interface of a [Session], found by a type assertion. A session has it
// if its store can name the keys that it knows, for an operator who does not know them.
type Lister interface {
	Session

	// List returns some of the store's keys that begin with prefix, which may be empty, and the
	// place to go on from: after is "" for the first page, and then Page.Next of the page
	// before, with the same prefix. A key that is held or waited for from the first page's
	// request to the last page's answer is in one page at least, however many others come and
	// go. It may be in several. Pages may have keys that are free, if the store remembers
	// them, or have just become so; [Session.Inspect] tells.
	//
	// limit is about how many keys the store is to look at, and positive: it bounds how long the
	// store is busy with one request. A page may have none of them, or more, and all of them if
	// the store cannot part them. Pages are in no order. A call changes nothing.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is some keys of a [Lister].
type Page struct {
	Keys []string
	Next string // where to go on; "" if this was the last page
}
