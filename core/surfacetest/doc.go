// Package surfacetest tries a surface with the requests of a hostile client: it sends a
// value in every spelling and encoding that somebody might take for it, in requests that
// two readers may read in two ways, and looks whether what a handler acts on and what is
// locked agree. It is for this module's surfaces, for those of other modules, and for the
// routes of a program.
//
// The handler tells a [Probe] what it acts on, as late as it can:
//
//	func TestNobodyGetsRoundTheLockOfAnOrder(t *testing.T) {
//		probe := &surfacetest.Probe{}
//		lock := httplock.Lock(locks, core.Policy{Key: "order:{path.id:int}"})
//		mux := http.NewServeMux()
//		mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			id, err := strconv.Atoi(r.PathValue("id"))
//			if err != nil {
//				http.Error(w, "no such order", http.StatusNotFound)
//				return
//			}
//			probe.Acts(r.Context(), id)
//		})))
//		surfacetest.HTTP(t, mux, probe, surfacetest.Request{Method: "POST", Target: "/orders/{}/pay"})
//	}
//
// {} stands where the value goes. The test fails
//
//   - if the handler acts without a lock,
//   - if it acts on one value under two keys, so that two calls could do so at a time,
//   - if it acts on two values under one key, so that it may not be the value that was
//     locked,
//   - if a request gets no answer, or one with status 500 and above, but for 501 and 505,
//     which net/http gives: a client must not be able to cause those,
//   - and if no two values come through, since it would show nothing then.
//
// It tries one request after the other, and needs no store but core/memlock.
//
// # Files
//
// http.go and grpc.go send the requests of a hostile client; probe.go judges what the handlers did,
// and has the spellings of a value.
package surfacetest
