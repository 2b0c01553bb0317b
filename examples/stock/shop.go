package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/middleware"
)

// deductRequest asks for one unit of a product.
type deductRequest struct {
	SKU string
}

// receipt confirms a sale.
type receipt struct {
	SKU  string `json:"sku"`
	Left int    `json:"left"`

	// Token is the lease's fencing token; a string, since a JSON number is a
	// double to most readers. Empty without a lock.
	Token string `json:"token,omitempty"`
}

var (
	errSoldOut = errors.New("sold out")
	errUnknown = errors.New("no such product")
)

// shop sells from a stock, over HTTP and by a function call.
type shop struct {
	stock  stock
	url    string // of the HTTP server
	deduct func(context.Context, deductRequest) (receipt, error)
	cost   counter

	server *http.Server
	served chan error
	locks  *core.Engine // nil without locks
	rdb    *redis.Client

	mu    sync.Mutex
	waits []time.Duration // from the arrival of each call to its run
}

// open opens a shop that listens on addr. If o.locked both of its entrances
// are guarded, and by the same key: the two templates render alike. Whoever does
// not get the lock within wait is turned away.
func open(o options, st stock, addr string, wait time.Duration) (*shop, error) {
	s := &shop{stock: st, served: make(chan error, 1)}
	s.deduct = s.sell
	var guard []gin.HandlerFunc
	if o.locked {
		locks, err := core.New(s.driver(o), core.WithNamespace("stock-example."+o.namespace), core.WithMaxWaiters(maxBuyers))
		if err != nil {
			return nil, err
		}
		s.locks = locks

		guard = []gin.HandlerFunc{middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: wait})}
		s.deduct = decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}", Wait: wait}, s.sell)
	}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.ContextWithFallback = true
	router.Use(func(c *gin.Context) { c.Request = c.Request.WithContext(arrive(c.Request.Context())) })
	router.POST("/products/:sku/deduct", append(guard, s.handle)...)

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the shop: %w", err), s.closeLocks())
	}
	s.url = "http://" + l.Addr().String()
	s.server = &http.Server{Handler: router, ReadHeaderTimeout: time.Minute}
	go func() { s.served <- s.server.Serve(l) }()
	return s, nil
}

// driver is the store of the locks, counted.
func (s *shop) driver(o options) driver.Driver {
	if o.redis == "" {
		return counted{Driver: memlock.New(), counter: &s.cost, calls: true}
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: o.redis})
	s.rdb.AddHook(wire{&s.cost})
	return counted{Driver: redislock.New(s.rdb), counter: &s.cost}
}

// handle is the HTTP entrance.
func (s *shop) handle(c *gin.Context) {
	r, err := s.sell(c.Request.Context(), deductRequest{SKU: c.Param("sku")})
	switch {
	case errors.Is(err, errSoldOut):
		c.JSON(http.StatusGone, gin.H{"error": err.Error()})
	case errors.Is(err, errUnknown):
		c.JSON(http.StatusNotFound, gin.H{"error": errUnknown.Error()})
	case err != nil:
		_ = c.Error(err) // kept for middleware; the client learns no more than the status
		c.JSON(http.StatusBadGateway, gin.H{"error": "the stock cannot be reached"})
	default:
		c.JSON(http.StatusOK, r)
	}
}

// sell takes one unit: it reads the number and writes one less. Whoever reads
// between the two sells the same unit again.
func (s *shop) sell(ctx context.Context, r deductRequest) (receipt, error) {
	s.began(ctx)
	units, err := s.stock.Units(ctx, r.SKU)
	if err != nil {
		return receipt{}, fmt.Errorf("read the stock: %w", err)
	}
	if units < 1 {
		return receipt{}, errSoldOut
	}
	if err := s.stock.SetUnits(ctx, r.SKU, units-1); err != nil {
		return receipt{}, fmt.Errorf("write the stock: %w", err)
	}
	sold := receipt{SKU: r.SKU, Left: units - 1}
	if lease, ok := core.LeaseFrom(ctx); ok {
		sold.Token = strconv.FormatInt(lease.Token(), 10)
	}
	return sold, nil
}

type arrivalKey struct{}

// arrive notes in the context when a call came to the lock.
func arrive(ctx context.Context) context.Context {
	return context.WithValue(ctx, arrivalKey{}, time.Now())
}

// began records how long the call waited since it arrived.
func (s *shop) began(ctx context.Context) {
	at, ok := ctx.Value(arrivalKey{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	s.mu.Lock()
	s.waits = append(s.waits, time.Since(at))
	s.mu.Unlock()
}

// closeTime bounds the wait for requests that are still running.
const closeTime = 10 * time.Second

// Close waits for running requests, then ends the locks: in this order, since
// a request may hold one.
func (s *shop) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if e := <-s.served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, s.closeLocks())
}

func (s *shop) closeLocks() error {
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	if s.rdb != nil {
		err = errors.Join(err, s.rdb.Close())
	}
	return err
}
