package server

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// requestsOfEtcd counts the messages that clients have sent: one for each request, and on a
// stream one for each lease that is kept alive and for each watch.
func requestsOfEtcd(ctx context.Context, addr string) (n int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Close = true
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), "} "); strings.HasPrefix(name, "grpc_server_msg_received_total{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			n += int64(v)
		}
	}
	return n, lines.Err()
}
