package lockpage_test

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

func ExampleHandler() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithIdentity("pod-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	operators := func(h http.Handler) http.Handler { return h } // your authentication
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", operators(lockpage.Handler(locks, lockpage.ShowKeys())))

	err = locks.Do(context.Background(), core.Policy{Name: "deduct", Key: "stock:book"}, func(context.Context) error {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/locks/", nil))
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "stock:book"), strings.Contains(w.Body.String(), "pod-1"))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 200 true true
	// <nil>
}

func ExampleHandler_gin() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	operators := r.Group("/debug", gin.BasicAuth(gin.Accounts{"dana": "a password from your configuration"}))
	operators.Any("/locks/*page", gin.WrapH(lockpage.Handler(locks)))

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/locks/", nil))
	fmt.Println(w.Code)
	// Output: 401
}

// The button behind basic authentication: the operator is its user.
func ExampleWithRelease_basicAuth() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithForceRelease())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	passwords := map[string]string{"dana": "from your configuration", "eve": "likewise"} // they may look
	mayRelease := map[string]bool{"dana": true}
	operators := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, password, _ := r.BasicAuth()
			if want := passwords[who]; want == "" || subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 0 {
				w.Header().Set("WWW-Authenticate", `Basic realm="locks"`)
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	page := operators(lockpage.Handler(locks, lockpage.ShowKeys(), lockpage.WithRelease(func(r *http.Request) (who string, ok bool) {
		who, _, ok = r.BasicAuth()
		return who, ok && mayRelease[who]
	})))

	ask := func(path, who string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.SetBasicAuth(who, passwords[who])
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		return w.Body.String()
	}
	err = locks.Do(context.Background(), core.Policy{Name: "deduct", Key: "stock:book"}, func(context.Context) error {
		link := regexp.MustCompile(`key\?id=\w+`).FindString(ask("/debug/locks/", "dana"))
		for _, who := range []string{"dana", "eve", "somebody"} {
			text := ask("/debug/locks/"+link, who)
			fmt.Println(who, strings.Contains(text, "stock:book"), strings.Contains(text, "Release by force"))
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// dana true true
	// eve true false
	// somebody false false
	// <nil>
}

// Operators who are known by name may take a lock from its holder.
func ExampleWithRelease() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithForceRelease())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	type operatorKey struct{} // your authentication has put the operator into the request's context
	page := lockpage.Handler(locks, lockpage.WithRelease(func(r *http.Request) (who string, ok bool) {
		who, ok = r.Context().Value(operatorKey{}).(string)
		return who, ok
	}))
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/debug/locks/release", nil))
	fmt.Println(w.Code)
	// Output: 403
}
