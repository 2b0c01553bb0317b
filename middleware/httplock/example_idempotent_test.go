package httplock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// A client that got no answer sends its payment again, with the same key.
func ExampleIdempotent() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	balance := 1000
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		balance -= 100
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%d left", balance)
	})
	account := func(r *http.Request) (string, error) { // what an authentication before it has found
		if user, _, ok := r.BasicAuth(); ok {
			return user, nil
		}
		return "", errors.New("nobody")
	}
	once := httplock.Idempotent(locks,
		core.Policy{Name: "pay", Key: "pay:{account}:{header.Idempotency-Key}", Wait: 5 * time.Second},
		idempotent.NewMemory(10_000), idempotent.Policy{Died: idempotent.Refuse},
		httplock.WithValue("account", account))
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(pay))

	for _, key := range []string{`"8e03978e"`, "8e03978e", ""} {
		q := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("100 cents"))
		q.SetBasicAuth("ann", "secret")
		q.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, q)
		fmt.Printf("%d %s%s\n", w.Code, w.Body, w.Header()["Idempotent-Replayed"])
	}
	// Output:
	// 201 900 left[]
	// 201 900 left[true]
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"A required value cannot be used: it is empty.","code":"LOCK_KEY_INVALID","placeholder":"header.Idempotency-Key"}[]
}
