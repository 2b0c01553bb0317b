package idempotenttest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/idempotenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const faultVariable = "LOCKAROUND_BROKEN_RECORDS"

// caught says for each mistake of a store a check that must fail.
var caught = map[string]string{
	"alone is ignored":           "NobodyTakesOverWhileTheFirstIsAlone",
	"alone is for ever":          "LaterTokenTakesOverWhenTheFirstIsNotAloneAnyMore",
	"own token waits":            "OwnTokenIsTakenAtOnce",
	"tokens are floats":          "EarlierTokenIsSuperseded",
	"no token is any":            "ClaimWithoutATokenTakesNothingOver",
	"fingerprint is ignored":     "AnotherFingerprintTakesNothingOver",
	"fingerprint is not kept":    "FirstBeginsAndOthersSeeIt",
	"run is ignored at the end":  "NobodyTakesOverWhileTheFirstIsAlone",
	"last answer counts":         "FirstAnswerOfARunCounts",
	"repeated answer is refused": "FirstAnswerOfARunCounts",
	"forgotten run is refused":   "AnswerIsStoredThoughTheStoreHasForgottenTheRun",
	"given up stays begun":       "GivenUpRunsAgain",
	"anybody gives up":           "GivenUpRunsAgain",
	"given up is forgotten":      "LateCopiesOfAGivenUpRunDoNothing",
	"answers are given up":       "GivingUpLeavesAnAnswer",
	"nothing is forgotten":       "ForgottenRunsAgain",
	"records never end":          "RecordsEnd",
	"bad claims are taken":       "BadClaimsAreRefused",
	"looks, then begins":         "OneOfManyBegins",
	"keys are one":               "KeysAreAnyStrings",
}

func TestReferenceKeepsAllPromises(t *testing.T) {
	idempotenttest.RunInBubble(t, func(*testing.T) idempotent.Store { return &reference{records: map[string]*record{}} })
}

// TestBroken is run by TestSuiteCatchesMistakes.
func TestBroken(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault == "" {
		t.Skip("it fails: TestSuiteCatchesMistakes runs it")
	}
	idempotenttest.RunInBubble(t, func(*testing.T) idempotent.Store {
		return &reference{fault: fault, records: map[string]*record{}}
	})
}

func TestSuiteCatchesMistakes(t *testing.T) {
	for fault, check := range caught {
		t.Run(fault, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestBroken$/^"+check+"$", "-test.v")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, _ := cmd.CombinedOutput()
			if !regexp.MustCompile(`(?m)^\s*--- FAIL: TestBroken/` + check).Match(out) {
				t.Errorf("%s does not notice:\n%s", check, out)
			}
		})
	}
}

// reference is a small store with a mistake, or none.
type reference struct {
	fault   string
	mu      sync.Mutex
	records map[string]*record
}

type record struct {
	idempotent.Record
	gone       bool
	alone, end time.Time
}

func (s *reference) has(fault string) bool { return s.fault == fault }

func (s *reference) at(key string) (string, *record) {
	if s.has("keys are one") {
		key = ""
	}
	r := s.records[key]
	if r != nil && !time.Now().Before(r.end) && !s.has("records never end") {
		delete(s.records, key)
		r = nil
	}
	return key, r
}

func (s *reference) refused(c idempotent.Claim) error {
	if s.has("bad claims are taken") {
		return nil
	}
	return c.Validate()
}

func newRecord(c idempotent.Claim) *record {
	r := &record{Record: idempotent.Record{State: idempotent.Begun, Run: c.Run, Token: c.Token, Fingerprint: c.Fingerprint}, end: time.Now().Add(c.Keep)}
	if c.Token == 0 {
		r.alone = time.Now().Add(c.Alone)
	}
	return r
}

func (s *reference) less(a, b int64) bool {
	if s.has("tokens are floats") {
		return float64(a) < float64(b)
	}
	return a < b
}

func (s *reference) Begin(_ context.Context, key string, c idempotent.Claim) (idempotent.Record, error) {
	if err := s.refused(c); err != nil {
		return idempotent.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, r := s.at(key)
	if s.has("looks, then begins") {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	switch {
	case r == nil, r.gone && r.Run != c.Run:
		s.records[key] = newRecord(c)
		if s.has("fingerprint is not kept") {
			s.records[key].Fingerprint = [32]byte{}
		}
		return idempotent.Record{}, nil
	case r.gone, c.Token > 0 && r.State == idempotent.Begun && s.less(c.Token, r.Token):
		return idempotent.Record{}, idempotent.ErrSuperseded
	}
	before := r.Record
	before.Alone = max(time.Until(r.alone), 0)
	free := before.Alone == 0 || r.Run == c.Run && !s.has("own token waits") || s.has("alone is ignored")
	if s.has("alone is for ever") && r.Run != c.Run {
		free = false
	}
	if r.State == idempotent.Begun && free && (c.Token > 0 || s.has("no token is any")) && (r.Fingerprint == c.Fingerprint || s.has("fingerprint is ignored")) {
		s.records[key] = newRecord(c)
	}
	return before, nil
}

func (s *reference) Finish(_ context.Context, key string, c idempotent.Claim, answer []byte) (bool, error) {
	if err := s.refused(c); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, r := s.at(key)
	switch {
	case r == nil && s.has("forgotten run is refused"):
		return false, nil
	case r == nil:
		r = newRecord(c)
		s.records[key] = r
	case r.gone, r.Run != c.Run && !s.has("run is ignored at the end"):
		return false, nil
	case r.State == idempotent.Done && !s.has("last answer counts"):
		return !s.has("repeated answer is refused"), nil
	}
	r.State, r.Token, r.Answer, r.alone = idempotent.Done, c.Token, append([]byte{}, answer...), time.Time{}
	return true, nil
}

func (s *reference) GiveUp(_ context.Context, key string, c idempotent.Claim) error {
	if err := s.refused(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, r := s.at(key)
	if r != nil && (r.Run == c.Run || s.has("anybody gives up")) && (r.State == idempotent.Begun || s.has("answers are given up")) && !s.has("given up stays begun") {
		r.gone, r.end = true, time.Now().Add(c.Alone)
		if s.has("given up is forgotten") {
			delete(s.records, key)
		}
	}
	return nil
}

func (s *reference) Forget(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key, _ := s.at(key); !s.has("nothing is forgotten") {
		delete(s.records, key)
	}
	return nil
}
