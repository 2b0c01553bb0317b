package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/redisrecords"
	"github.com/lockaround/lockaround/middleware"
)

const (
	// patient is how many buyers send their orders again, until they have an answer.
	patient = 100

	// clientTimeout is how long one of them waits for it.
	clientTimeout = 300 * time.Millisecond

	// lateHeader is of orders whose answer comes too late: each third one's first.
	lateHeader = "X-Late"
)

// orders are the routes at which a buyer orders one unit, and gives his order an Idempotency-Key. At both, a lock keeps
// orders apart. At the second one an order runs once, however often it is sent.
var orders = [...]string{"/orders/:sku", "/orders-once/:sku"}

// takeOrders adds the routes.
func (s *shop) takeOrders(router *gin.Engine, o options, locks *core.Engine, wait time.Duration) error {
	records, err := s.records(o)
	if err != nil {
		return err
	}
	lock := middleware.Lock(locks, core.Policy{Name: "stock", Key: "stock:{path.sku}", Wait: wait})
	once := middleware.Idempotent(locks, core.Policy{Name: "order", Key: "order:{header.X-Buyer}:{header.Idempotency-Key}", Wait: wait}, records,
		idempotent.Policy{Died: idempotent.Refuse})
	router.POST(orders[0], late, lock, s.handle)
	router.POST(orders[1], late, once, lock, s.handle)
	return nil
}

// records is where the answers to orders are kept: beside the locks if these are in Redis.
func (s *shop) records(o options) (idempotent.Store, error) {
	if o.place.kind == nowhere {
		return idempotent.NewMemory(maxBuyers), nil
	}
	rdb := o.place.client(nil)
	s.shut = closeBoth(s.shut, rdb.Close)
	return redisrecords.New(rdb, "stock-example:"+o.namespace+":once:")
}

func closeBoth(a, b func() error) func() error {
	return func() error {
		if a == nil {
			return b()
		}
		return errors.Join(a(), b())
	}
}

// late keeps the answer of an order back until its client has hung up, as a slow network does.
func late(c *gin.Context) {
	if c.Next(); c.GetHeader(lateHeader) != "" {
		<-c.Request.Context().Done()
	}
}

// orderAgain sells to patient buyers at each route, who send an order again if its answer does not come. It returns how
// many units were deducted. It is an error if the second route did not deduct one for each buyer.
func orderAgain(ctx context.Context, o options) (deducted [len(orders)]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	o.units = 10 * patient
	for i, route := range orders {
		if deducted[i], err = orderAt(ctx, o, route[:len(route)-len(":sku")]+sku); err != nil {
			return deducted, err
		}
	}
	if deducted[1] != patient {
		return deducted, fmt.Errorf("orders that are sent again: %d units were deducted for %d buyers", deducted[1], patient)
	}
	return deducted, nil
}

func orderAt(ctx context.Context, o options, path string) (deducted int, err error) {
	o.namespace, o.addr, o.grpcAddr = rand.Text(), anyPort, anyPort
	st, err := fill(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s, err := open(o, st, core.Forever)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: patient}, Timeout: clientTimeout}
	errs := make([]error, patient)
	var all sync.WaitGroup
	for buyer := range patient {
		all.Go(func() { errs[buyer] = order(ctx, client, s.url+path, buyer) })
	}
	all.Wait()
	client.CloseIdleConnections()
	failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if err := s.Close(); err != nil || failed >= 0 {
		return 0, errors.Join(errs[max(failed, 0)], err)
	}
	left, err := st.Units(ctx, sku)
	return o.units - left, err
}

// order sends the order of a buyer, again and again until it is answered, under the same name.
func order(ctx context.Context, client *http.Client, url string, buyer int) error {
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("X-Buyer", strconv.Itoa(buyer)) // a service has it from its authentication
		req.Header.Set("Idempotency-Key", `"first order"`)
		if try == 0 && buyer%3 == 0 {
			req.Header.Set(lateHeader, "1")
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("the shop answered %s", resp.Status)
		}
		if try == 20 || ctx.Err() != nil {
			return fmt.Errorf("buyer %d got no answer: %w", buyer, err)
		}
	}
}
