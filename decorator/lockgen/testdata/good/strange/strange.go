// Package strange has names that stand in each other's way.
package strange

import (
	. "context"
	"database/sql"
	html "html/template"
	"text/template"
)

type (
	core    int
	time    struct{}
	context = Context
	strconv [1]byte
	next    interface {
		//lock:with "next:{w}:{section}:{err}:{guard}" wait=1s
		next(ctx context, w, section string, err core, guard bool, _ time, out strconv) (_ *template.Template, locks html.HTML, _ error)
		nextNext()
		nextGuard()
	}
)

// HTTPStore has the names of imports for its type parameters.
type HTTPStore[sql any, decorator interface{ ~uint }] interface {
	//lock:with "{nil}:{string}:{httpStoreGetKey}"
	Get(ctx Context, nil decorator, string string, httpStoreGetKey int64, s sql) error
}

//lock:with "{locked}/{tx}"
func locked(_ Context, locked, tx string, options *sql.TxOptions, named func() (named sql.Result, err error)) (ctx Context, err error) {
	return nil, nil
}

// WithTx has results that are called like its parameters' types.
//
//lock:with "{sql}"
func WithTx[id interface{ ~int8 | ~int16 }](ctx Context, sql id) (tx sql.Result, err error) {
	return nil, nil
}

// valued has a parameter that is called like what finds the values of a key.
//
//lock:with "valued:{value}"
func valued(_ Context, value string) error { return nil }
