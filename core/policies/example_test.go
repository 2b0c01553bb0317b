package policies_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/policies"
)

// An operator gives callers of one policy more time, without a new build.
func ExampleParse() {
	overrides, err := policies.Parse([]byte(`
policies:
  "stock:{.}":
    wait: 2s
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithOverrides(overrides))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	stock, err := core.NewGuard(locks, core.Policy{Key: "stock:{.}", Wait: 50 * time.Millisecond}, core.Fields[string]())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(locks.CheckOverrides())
	fmt.Println(stock.Policy().Wait)
	err = stock.Do(context.Background(), "A-1", func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// <nil>
	// 2s
	// <nil>
}

// Every fault is told, with its place.
func ExampleParse_faults() {
	_, err := policies.Parse([]byte(`{"policies": {
	"stock": {"wiat": "2s"},
	"refund": {"wait": 2, "mode": "sharde"}
}}`))
	fmt.Println(err)
	// Output:
	// policies:2:12: a policy has no field "wiat"; did you mean wait?
	// policies:3:21: wait is 2, which has no unit; write 2s if seconds are meant
	// policies:3:32: mode is "sharde"; did you mean shared?
}

func ExampleLoad() {
	_, err := policies.Load("testdata/wrong/duplicate-name.yaml")
	fmt.Println(err)
	// Output: testdata/wrong/duplicate-name.yaml:6:3: "stock" is in policies already, at 2:3; make them one
}

// The file of an operator is taken again whenever it changes.
func ExampleWatch() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "locks.yaml")
	write := func(wait string) {
		if err := os.WriteFile(path, []byte("policies: {stock: {wait: "+wait+"}}"), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	write("1s")
	overrides, err := policies.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithOverrides(overrides),
		core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	stock, err := core.NewGuard(locks, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { _ = policies.Watch(ctx, locks, path, 10*time.Millisecond) })
	fmt.Println(stock.Policy().Wait)
	write("3s")
	for stock.Policy().Wait != 3*time.Second {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(stock.Policy().Wait)
	stop()
	watching.Wait()
	// Output:
	// 1s
	// 3s
}
