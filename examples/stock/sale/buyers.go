package sale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

// sku is the one product that everybody wants.
const sku = "book"

// tally is the outcome of a run, or of one process's part in it.
type tally struct {
	Sold    int
	Refused int
	Left    int    // in the stock afterwards
	Failed  int    // neither sold nor refused
	Failure string // the first of them

	Waits  []time.Duration
	Holds  int64 // calls that ran; with locks each of them under one
	Grants int64 // leases that the store granted for them
	Trips  int64 // round trips to the store of the locks
}

// add adds another process's part. Left is nobody's part.
func (t *tally) add(o tally) {
	t.Sold += o.Sold
	t.Refused += o.Refused
	t.Failed += o.Failed
	if t.Failure == "" {
		t.Failure = o.Failure
	}
	t.Waits = append(t.Waits, o.Waits...)
	t.Holds += o.Holds
	t.Grants += o.Grants
	t.Trips += o.Trips
}

// wait returns the p-th percentile of the waits, 0 if there are none.
func (t *tally) wait(p int) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.Waits))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// buy sends all buyers to the shop at once, a third to each entrance, and
// returns when the last has its answer.
func buy(ctx context.Context, s *shop, buyers int) (tally, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: buyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	conn, err := grpc.NewClient(s.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return tally{}, err
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	stub := stockpb.NewStockClient(conn)
	ways := [entrances]func() error{
		func() error { return buyOverHTTP(ctx, client, s.url) },
		func() error { return buyOverGRPC(ctx, stub) },
		func() error {
			_, err := s.deduct(arrive(ctx), deductRequest{SKU: sku})
			return err
		},
	}

	errs := make([]error, buyers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() {
			<-start
			errs[i] = ways[i%len(ways)]()
		})
	}
	close(start)
	done.Wait()

	var t tally
	for _, err := range errs {
		switch {
		case err == nil:
			t.Sold++
		case errors.Is(err, errSoldOut):
			t.Refused++
		default:
			t.Failed++
			if t.Failure == "" {
				t.Failure = err.Error()
			}
		}
	}
	s.mu.Lock()
	t.Waits, t.Holds = s.waits, int64(len(s.waits))
	s.mu.Unlock()
	t.Grants, t.Trips = s.cost.grants.Load(), s.cost.trips.Load()
	return t, nil
}

// buyOverHTTP is one buyer at the HTTP entrance.
func buyOverHTTP(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/products/"+sku+"/deduct", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusGone:
		return errSoldOut
	}
	return fmt.Errorf("shop answered %s: %s", resp.Status, body)
}

// buyOverGRPC is one buyer at the gRPC entrance.
func buyOverGRPC(ctx context.Context, stub stockpb.StockClient) error {
	_, err := stub.Deduct(ctx, &stockpb.DeductRequest{Sku: sku})
	if status.Code(err) == codes.ResourceExhausted {
		return errSoldOut
	}
	return err
}
