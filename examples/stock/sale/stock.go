package sale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// stock is where the number of units is kept. Units and SetUnits are two
// separate requests to another party, as they are to most services and
// databases: between them anybody may come in.
//
// Units of a product that the stock does not know are errUnknown.
type stock interface {
	Units(ctx context.Context, sku string) (int, error)
	SetUnits(ctx context.Context, sku string, units int) error
	Close() error
}

// redisStock keeps the number in a Redis string, read by GET and written by SET.
type redisStock struct {
	rdb    redis.UniversalClient
	prefix string
}

// keepStock is how long a run's keys stay in Redis.
const keepStock = time.Hour

func newRedisStock(p place, namespace string) *redisStock {
	return &redisStock{rdb: p.client(nil), prefix: "stock-example:" + namespace + ":units:"}
}

func (s *redisStock) Units(ctx context.Context, sku string) (int, error) {
	n, err := s.rdb.Get(ctx, s.prefix+sku).Int()
	if errors.Is(err, redis.Nil) {
		return 0, errUnknown
	}
	return n, err
}

func (s *redisStock) SetUnits(ctx context.Context, sku string, units int) error {
	return s.rdb.Set(ctx, s.prefix+sku, units, keepStock).Err()
}

func (s *redisStock) Close() error { return s.rdb.Close() }

// httpStock is the client of a stock service: GET reads, PUT writes.
type httpStock struct {
	url    string
	client *http.Client
	close  func() error
}

// stockConnections bounds the pool to the stock service, as pools are.
const stockConnections = 64

// newHTTPStock starts a stock service on a loopback port and returns a client
// of it. Close stops the service.
func newHTTPStock() (*httpStock, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the stock service: %w", err)
	}
	server := &http.Server{Handler: stockService(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s := dialStock("http://" + l.Addr().String() + "/units/")
	hangUp := s.close
	s.close = func() error {
		err := errors.Join(hangUp(), server.Close())
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
	return s, nil
}

// dialStock returns a client of a stock service that another process has started.
func dialStock(url string) *httpStock {
	transport := &http.Transport{MaxConnsPerHost: stockConnections, MaxIdleConnsPerHost: stockConnections}
	return &httpStock{
		url:    url,
		client: &http.Client{Transport: transport},
		close: func() error {
			transport.CloseIdleConnections()
			return nil
		},
	}
}

// stockOf returns the stock that a replica is told of.
func stockOf(o options) stock {
	if o.stock != "" {
		return dialStock(o.stock)
	}
	return newRedisStock(o.place, o.namespace)
}

// stockService keeps the units of each product in memory. Each request by
// itself is safe; nothing ties a GET to the PUT that follows it.
func stockService() http.Handler {
	var mu sync.Mutex
	units := map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /units/{sku}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n, ok := units[r.PathValue("sku")]
		mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, n) // a client that hung up needs no answer
	})
	mux.HandleFunc("PUT /units/{sku}", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		units[r.PathValue("sku")] = string(body)
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (s *httpStock) Units(ctx context.Context, sku string) (int, error) {
	body, err := s.request(ctx, http.MethodGet, sku, "")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(body)
}

func (s *httpStock) SetUnits(ctx context.Context, sku string, units int) error {
	_, err := s.request(ctx, http.MethodPut, sku, strconv.Itoa(units))
	return err
}

func (s *httpStock) request(ctx context.Context, method, sku, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+url.PathEscape(sku), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode == http.StatusNotFound {
		return "", errUnknown
	}
	if resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s units of %q: stock service answered %s", method, sku, resp.Status)
	}
	return answer.String(), nil
}

func (s *httpStock) Close() error { return s.close() }
