package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

// basket is a request with these products, each on the shelf of its index.
func basket(skus ...string) *testpb.Request {
	r := &testpb.Request{Sku: "s", Tags: skus}
	for i, sku := range skus {
		r.Items = append(r.Items, &testpb.Item{Sku: sku, Shelf: int64(i), Order: &testpb.Order{Id: sku}})
	}
	return r
}

// keysOf are the keys of the lock that a context has.
func keysOf(ctx context.Context) []string {
	l, _ := core.LeaseFrom(ctx)
	return l.Keys()
}

func TestRepeatedFieldLocksAKeyForEachElement(t *testing.T) {
	s := newStore(t)
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprint(i))
	}
	for name, tc := range map[string]struct {
		keys  []string
		empty bool // is allowed
		req   *testpb.Request
		want  []string // nil if refused
		field string   // if refused
		is    error    // likewise
	}{
		"several":                   {keys: []string{"stock:{items[].sku}"}, req: basket("b", "a:1", "b"), want: []string{"stock:a%3A1", "stock:b"}},
		"beside another key":        {keys: []string{"{sku}", "stock:{items[].sku}"}, req: basket("b"), want: []string{"s", "stock:b"}},
		"two fields of an element":  {keys: []string{"{items[].shelf}:{items[].order.id}"}, req: basket("b", "a"), want: []string{"0:b", "1:a"}},
		"scalars":                   {keys: []string{"{tags[]:lower}"}, req: basket("B", "a", "b"), want: []string{"a", "b"}},
		"empty":                     {keys: []string{"{items[].sku}"}, req: basket(), field: "items[].sku", is: core.ErrMissing},
		"empty and allowed":         {keys: []string{"{sku}", "{items[].sku}"}, empty: true, req: basket(), want: []string{"s"}},
		"all empty and allowed":     {keys: []string{"{items[].sku}"}, empty: true, req: basket(), want: []string{}},
		"element without a value":   {keys: []string{"{items[].sku}"}, empty: true, req: basket("a", ""), field: "items[1].sku", is: core.ErrMissing},
		"element without a message": {keys: []string{"{items[].order.id}"}, req: &testpb.Request{Items: []*testpb.Item{{Sku: "a"}}}, field: "items[0].order.id", is: core.ErrMissing},
		"nil element":               {keys: []string{"{items[].shelf}"}, req: &testpb.Request{Items: []*testpb.Item{nil}}, field: "items[0].shelf", is: core.ErrMissing},
		"more different than 64":    {keys: []string{"{tags[]}"}, req: basket(many...), is: core.ErrTooMany},
		"more elements than 1024":   {keys: []string{"{tags[]}"}, req: basket(slices.Repeat([]string{"a"}, 1025)...), field: "tags[]", is: core.ErrTooMany},
		"a million elements":        {keys: []string{"{tags[]}"}, req: &testpb.Request{Tags: make([]string, 1_000_000)}, field: "tags[]", is: core.ErrTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			i := interceptor.Lock(s.locks, interceptor.Rules{buy: {Keys: tc.keys, AllowEmpty: tc.empty}})
			var got []string
			_, err := i.UnaryServer()(t.Context(), tc.req, &grpc.UnaryServerInfo{FullMethod: buy}, func(ctx context.Context, _ any) (any, error) {
				got = keysOf(ctx)
				return nil, nil
			})
			if tc.want != nil {
				if err != nil || !slices.Equal(got, tc.want) {
					t.Errorf("%q, %v; want %q", got, err, tc.want)
				}
				return
			}
			if told := tell(err); told.code != codes.InvalidArgument || told.reason != "LOCK_KEY_INVALID" || told.field != tc.field || !errors.Is(err, tc.is) {
				t.Errorf("%+v, %v", told, err)
			}
			if many := errors.Is(tc.is, core.ErrTooMany); many != strings.Contains(fmt.Sprint(err), "there are more values than one request can have") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestListOfTheFirstMessageLocksItsStream(t *testing.T) {
	s := newStore(t)
	i := interceptor.Lock(s.locks, interceptor.Rules{upload: {Keys: []string{"stock:{first.items[].sku}"}}})
	c := serve(t, &shop{upload: func(ss testpb.Shop_UploadServer) error {
		return ss.SendAndClose(&testpb.Reply{Text: fmt.Sprint(keysOf(ss.Context()))})
	}}, i)
	stream, err := c.Upload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(basket("b", "a")); err != nil {
		t.Fatal(err)
	}
	if reply, err := stream.CloseAndRecv(); err != nil || reply.GetText() != "[stock:a stock:b]" {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestBasketsInAnyOrderNeverDeadlock(t *testing.T) {
	s := newStore(t)
	bought := 0
	var all sync.WaitGroup
	for _, locks := range []*core.Engine{s.locks, s.rival} {
		i := interceptor.Lock(locks, interceptor.Rules{buy: {Keys: []string{"stock:{items[].sku}"}, Wait: core.Forever}})
		for _, req := range []*testpb.Request{basket("a", "b", "c"), basket("c", "b", "a", "c")} {
			all.Go(func() {
				for range 20 {
					_, err := i.UnaryServer()(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
						bought++
						return nil, nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if bought != 80 {
		t.Errorf("bought %d", bought)
	}
}

func TestImpossibleListIsRefusedWithTheCure(t *testing.T) {
	s := newStore(t)
	for key, want := range map[string]string{
		"{items}":                "items of lockaround.test.v1.Request is repeated; a part of a key is one value; {items[].sku} in an element of Keys is a key for each element",
		"{items.sku}":            "items of lockaround.test.v1.Request is repeated",
		"{tags}":                 "{tags[]} in an element of Keys is a key for each element",
		"{blobs}":                "blobs of lockaround.test.v1.Request is repeated; a part of a key is one value; besides",
		"{blobs[]}":              "blobs of lockaround.test.v1.Request is of type bytes; a part of a key is a string",
		"{items[]}":              "items of lockaround.test.v1.Request is a message; name a field of it, such as sku",
		"{items[].skuu}":         "lockaround.test.v1.Item has no field skuu; did you mean sku?",
		"{sku[]}":                "sku of lockaround.test.v1.Request is not repeated; write it without []",
		"{labels[]}":             "labels of lockaround.test.v1.Request is a map",
		"{items[].tags[]}":       "{items[].tags[]} goes through two lists",
		"{items[].tags}":         "tags of lockaround.test.v1.Item is repeated",
		"{tags[]}:{items[].sku}": "{items[].sku} is of another list than {tags[]}",
		"{meta.ids[]}":           "this cannot be the name of metadata",
	} {
		if _, err := interceptor.New(s.locks, interceptor.Rules{buy: {Keys: []string{key}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", key, err, want)
		}
	}
	_, err := interceptor.New(s.locks, interceptor.Rules{buy: {Key: "k:{items[].sku}"}})
	if err == nil || !strings.Contains(err.Error(), "gives a key for each element of a list, and there is room for one key here") {
		t.Errorf("Key: %v", err)
	}
	_, err = interceptor.New(s.locks, interceptor.Rules{buy: {Keys: []string{"{a[]}"}}}, interceptor.WithValue("a[]", func(context.Context, any) (string, error) { return "", nil }))
	if err == nil || !strings.Contains(err.Error(), "a name with [] is that of a list") {
		t.Errorf("WithValue: %v", err)
	}
}
