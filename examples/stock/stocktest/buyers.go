package stocktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

var errSoldOut = errors.New("sold out")

// answer is what a buyer may be told, by each entrance.
type answer struct {
	word   string
	err    error
	http   int
	grpc   codes.Code
	reason string // and code of the HTTP problem; empty if the stock answers and not the lock
}

var answers = []answer{
	{"sold", nil, 200, codes.OK, ""},
	{"sold out", errSoldOut, 410, codes.ResourceExhausted, ""},
	{"stale", fence.ErrStale, 412, codes.FailedPrecondition, ""},
	{"lost", core.ErrLost, 500, codes.Internal, "LOCK_LOST"},
	{"busy", core.ErrBusy, 409, codes.Aborted, "LOCK_BUSY"},
	{"timeout", core.ErrTimeout, 409, codes.Aborted, "LOCK_TIMEOUT"},
	{"unavailable", core.ErrUnavailable, 503, codes.Unavailable, "LOCK_UNAVAILABLE"},
}

// NoAnswer is the word for a call that ended otherwise.
const NoAnswer = "no answer"

// answerTo is the answer that matches, or one whose word is text.
func answerTo(text string, matches func(answer) bool) answer {
	if i := slices.IndexFunc(answers, matches); i >= 0 {
		return answers[i]
	}
	return answer{word: text, http: http.StatusBadGateway, grpc: codes.Unknown}
}

func answerToError(err error) answer {
	return answerTo(fmt.Sprint(err), func(a answer) bool { return a.err == err || a.err != nil && errors.Is(err, a.err) })
}

// Entrance is one way into a service. Buy is one buyer, who is told a word: "sold", "sold
// out", "stale", "lost", "busy", "timeout", "unavailable", or [NoAnswer]. Any other is an
// answer that nobody should get.
type Entrance struct {
	Lock string // the key template
	Buy  func(context.Context, Addresses) string
}

// Entrances are a gin route, a gRPC method, and a function.
var Entrances = []Entrance{
	{"stock:{path.sku}", func(ctx context.Context, a Addresses) string { return post(ctx, a.HTTP+"/products/"+SKU+"/deduct") }},
	{"stock:{sku}", func(ctx context.Context, a Addresses) string { return deduct(ctx, a.GRPC) }},
	{"stock:{SKU}", func(ctx context.Context, a Addresses) string { return post(ctx, a.HTTP+"/function/"+SKU) }},
}

func post(ctx context.Context, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return NoAnswer
	}
	defer func() { _ = resp.Body.Close() }()
	var problem struct{ Code, Detail string }
	_ = json.NewDecoder(resp.Body).Decode(&problem) // what the stock says itself is no problem
	return answerTo(fmt.Sprint(resp.Status, problem), func(a answer) bool {
		return a.http == resp.StatusCode && a.reason == problem.Code
	}).word
}

func deduct(ctx context.Context, target string) string {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_, err = stockpb.NewStockClient(conn).Deduct(ctx, &stockpb.DeductRequest{Sku: SKU})
	st, reason := status.Convert(err), ""
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if st.Code() == codes.Unavailable && reason == "" {
		return NoAnswer // the lock would say why
	}
	return answerTo(fmt.Sprint(err, reason), func(a answer) bool { return a.grpc == st.Code() && a.reason == reason }).word
}
