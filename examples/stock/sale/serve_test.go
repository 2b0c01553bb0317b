package sale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

var (
	curl    = regexp.MustCompile(`^  curl -i -X POST (http://\S+)$`)
	page    = regexp.MustCompile(`^Who holds and who waits is at (http://\S+),`)
	grpcurl = regexp.MustCompile(`^  grpcurl -plaintext -d '(\{.*\})' (\S+) stock\.v1\.Stock/Deduct$`)
)

// TestServeAnswersTheCommandsItPrints does what the two printed commands do.
func TestServeAnswersTheCommandsItPrints(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, both, []string{"-serve", "-buyers", "10", "-units", "5"}, nil, w, &errs)
		_ = w.Close()
	}()

	var url, body, target, locks string
	for lines := bufio.NewScanner(r); locks == "" && lines.Scan(); {
		if m := curl.FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
		if m := grpcurl.FindStringSubmatch(lines.Text()); m != nil {
			body, target = m[1], m[2]
		}
		if m := page.FindStringSubmatch(lines.Text()); m != nil {
			locks = m[1]
		}
	}
	if url == "" || target == "" || locks == "" {
		t.Fatalf("printed curl to %q, grpcurl to %q and the page at %q", url, target, locks)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for i, want := range []int{200, 200, 200} {
		resp, err := client.Post(url, "", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want || !strings.Contains(string(body), `"token":"`) {
			t.Errorf("purchase %d over HTTP: status %d, want %d and a token: %s", i+1, resp.StatusCode, want, body)
		}
	}
	for busy := false; !busy; { // its buyers come within a second or two
		resp, err := client.Get(locks)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != 200 {
			t.Fatalf("the page: %s, %v", resp.Status, err)
		}
		busy = strings.Contains(string(text), "stock:lamp") && strings.Contains(string(text), "checkout")
	}
	conn := dial(t, target)
	reflected(t, conn)
	var in stockpb.DeductRequest
	if err := protojson.Unmarshal([]byte(body), &in); err != nil {
		t.Fatalf("the printed request %s: %v", body, err)
	}
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		sold, err := stockpb.NewStockClient(conn).Deduct(t.Context(), &in)
		if status.Code(err) != want || (err == nil && sold.GetToken() == 0) {
			t.Errorf("purchase %d over gRPC: %v, %v; want %s and a token", i+1, sold, err, want)
		}
	}
	stop()
	if got := <-ended; got != 0 {
		t.Errorf("exit status %d after the interrupt: %s", got, errs.String())
	}
}

func TestAnAddressInUseIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for name, want := range map[string]string{"-addr": "open the shop to HTTP: ", "-grpc-addr": "open the shop to gRPC: "} {
		var errs strings.Builder
		args := []string{"-serve", "-buyers", "3", "-units", "3", name, l.Addr().String()}
		if status := run(t.Context(), both, args, nil, io.Discard, &errs); status != 1 {
			t.Errorf("%s in use: exit status %d, want 1", name, status)
		}
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%s in use: said %q, want %q in it", name, errs.String(), want)
		}
	}
}

// reflected checks that the server tells what grpcurl asks it.
func reflected(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	ask, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ask.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "stock.v1.Stock"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := ask.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answer, err := ask.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection knows no stock.v1.Stock: %v", answer)
	}
	if _, err := ask.Recv(); err != io.EOF {
		t.Errorf("reflection ended with %v, want EOF", err)
	}
}

// dial returns a connection to a server; it ends with the test.
func dial(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}
