package once

import (
	"context"
	"io"
	"math/big"
	"net/netip"
	"time"
	"unsafe"
)

type shop interface {
	//lock:with "a" once=refused
	Misspelt(ctx context.Context) error
	//lock:with "a" once=twice
	Unknown(ctx context.Context) error
	//lock:with "a" once
	Value(ctx context.Context) error
	//lock:with "a" once=refuse once=rerun
	Twice(ctx context.Context) error
	//lock:with "a" keep=24h
	KeepAlone(ctx context.Context) error
	//lock:with "a" once=refuse keep=9s
	Short(ctx context.Context) error
	//lock:with "a" once=refuse keep=8761h
	Long(ctx context.Context) error
	//lock:with "a" once=refuse keep=24
	Unit(ctx context.Context) error

	//lock:with "a" wait=1s once=refuse
	//lock:with "b"
	Keys(ctx context.Context) error
	//lock:with "a:{ids[]}" once=refuse
	List(ctx context.Context, ids []string) error
	//lock:with "a" once=refuse mode=shared
	Shared(ctx context.Context) error
	//lock:with "a" mode=semaphore limit=3 once=refuse
	Semaphore(ctx context.Context) error
	//lock:with "a" once=refuse reentrant
	Reentrant(ctx context.Context) error
	//lock:with "a" once=refuse minhold=1s
	MinHold(ctx context.Context) error
	//lock:with "a" once=refuse when=always
	When(ctx context.Context) error

	//lock:with "a" once=refuse
	Func(ctx context.Context, n int, done func(error)) error
	//lock:with "a" once=refuse
	Chan(ctx context.Context, a, b string, done ...chan int) error
	//lock:with "a" once=refuse
	Pointer(ctx context.Context, p unsafe.Pointer) error
	//lock:with "a" once=refuse
	Complex(ctx context.Context) (n int, c []complex128, err error)
	//lock:with "a" once=refuse
	Field(ctx context.Context, o *order) error
	//lock:with "a" once=refuse
	Map(ctx context.Context, m map[struct{ A int }]bool) error
	//lock:with "a" once=refuse
	Hidden(ctx context.Context, n big.Int) (hidden, error)

	//lock:with "a" once=refuse
	Reader(ctx context.Context) (io.Reader, error)
	//lock:with "a" once=refuse
	Any(ctx context.Context) (any, error)
	//lock:with "a" once=refuse
	Error(ctx context.Context) (first error, err error)
	//lock:with "a" once=refuse
	Readers(ctx context.Context) (map[string][]io.Reader, error)

	//lock:with "a" once=refuse
	OneWay(ctx context.Context, v oneWay) (oneWay, error)

	//lock:with "a" once=refuse
	Right(ctx context.Context, r io.Reader, v any, m map[netip.Addr][]big.Int, o oneWay) (*big.Int, map[string]any, time.Time, error)
}

type order struct {
	ID    int
	Lines []struct{ line }
	skip  chan int
}

type line struct {
	Next *order
	Each func()
}

type hidden struct{ n int }

type oneWay struct{ c chan int }

func (oneWay) MarshalText() ([]byte, error) { return nil, nil }

func always() bool { return true }
