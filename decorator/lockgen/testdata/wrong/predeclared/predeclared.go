package predeclared

import "context"

type string = []byte

var nil = 0

//lock:with "refill"
func Refill(ctx context.Context) error { return none() }

func none() error { panic("none") }
