package directive_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/internal/directive"
)

func TestOptionsSetTheFieldsOfAPolicy(t *testing.T) {
	for _, tc := range []struct {
		comment string
		key     string
		policy  core.Policy
	}{
		{`//lock:with "stock:{sku}"`, "stock:{sku}", core.Policy{}},
		{"//lock:with\t`raw \\ {sku}` \t", `raw \ {sku}`, core.Policy{}},
		{`//lock:with "a\x62\u00e9\n\"" name=deduct`, "abé\n\"", core.Policy{Name: "deduct"}},
		{`//lock:with "a" wait=2s ttl=1m30s maxhold=1h minhold=5ms linger=1us`, "a", core.Policy{
			Wait: 2 * time.Second, TTL: 90 * time.Second, MaxHold: time.Hour, MinHold: 5 * time.Millisecond, Linger: time.Microsecond,
		}},
		{`//lock:with "a" wait=forever maxwaiting=100 norenew reentrant`, "a", core.Policy{Wait: core.Forever, MaxWaiting: 100, NoRenew: true, Reentrant: true}},
		{`//lock:with "a[]" allowempty`, "a[]", core.Policy{AllowEmpty: true}},
		{`//lock:with "a" wait=0s ttl=0s maxhold=0 minhold=0s`, "a", core.Policy{Wait: core.TryOnce, MaxHold: core.Forever}},
		{`//lock:with "a" mode=exclusive fairness=balanced tokens=clock`, "a", core.Policy{Tokens: core.ClockTokens}},
		{`//lock:with "a" mode=shared fairness=strict tokens=durable`, "a", core.Policy{Mode: core.Shared, Fairness: core.Strict, Tokens: core.DurableTokens}},
		{`//lock:with "a" mode="semaphore" limit=3 name="deduct \"stock\""`, "a", core.Policy{Mode: core.Semaphore, Limit: 3, Name: `deduct "stock"`}},
	} {
		if is, fault := directive.Recognize(tc.comment); !is || fault != nil {
			t.Errorf("%s: no directive, %v", tc.comment, fault)
		}
		d, faults := directive.Parse(tc.comment)
		if len(faults) > 0 || d.Key != tc.key || !reflect.DeepEqual(d.Policy, tc.policy) {
			t.Errorf("%s: got %q, %+v, %v", tc.comment, d.Key, d.Policy, faults)
		}
	}
}

func TestConditionIsTheNameOfAFunction(t *testing.T) {
	if d, faults := directive.Parse(`//lock:with "a" when=needsLock`); len(faults) > 0 || d.When != "needsLock" {
		t.Errorf("got %q, %v", d.When, faults)
	}
	for _, comment := range []string{`//lock:with "a" when`, `//lock:with "a" when=`, `//lock:with "a" when=x.y`, `//lock:with "a" when=f()`, `//lock:with "a" when="not f"`, `//lock:with "a" when=func`} {
		if d, faults := directive.Parse(comment); len(faults) == 0 || d.When != "" {
			t.Errorf("%s: got %q, %v", comment, d.When, faults)
		}
	}
}

func TestCallThatRunsOnceSaysWhatBecomesOfItsRecord(t *testing.T) {
	for comment, want := range map[string]directive.Directive{
		`//lock:with "a" once=refuse`:                 {Once: "refuse"},
		`//lock:with "a" keep=10s wait=2s once=rerun`: {Once: "rerun", Keep: 10 * time.Second},
		`//lock:with "a" once="tx" keep=8760h`:        {Once: "tx", Keep: 365 * 24 * time.Hour},
		`//lock:with "a" wait=2s`:                     {},
	} {
		if d, faults := directive.Parse(comment); len(faults) > 0 || d.Once != want.Once || d.Keep != want.Keep {
			t.Errorf("%s: got %q, %v, %v", comment, d.Once, d.Keep, faults)
		}
	}
	for comment, says := range map[string]string{
		`//lock:with "a" once=refused`:          "did you mean refuse?",
		`//lock:with "a" once=twice`:            "use refuse or rerun or tx",
		`//lock:with "a" once`:                  "once=refuse",
		`//lock:with "a" once=tx keep=9999ms`:   "use 10s to 8760h0m0s",
		`//lock:with "a" once=tx keep=8760h1ns`: "use 10s to 8760h0m0s",
		`//lock:with "a" once=tx keep=0`:        "use 10s to 8760h0m0s",
		`//lock:with "a" once=tx keep=24`:       "no unit",
	} {
		if d, faults := directive.Parse(comment); len(faults) != 1 || !strings.Contains(faults[0].Text, says) || d.Keep != 0 {
			t.Errorf("%s: got %v, %v; want %s", comment, d.Keep, faults, says)
		}
	}
}

func TestOtherCommentsAreLeftAlone(t *testing.T) {
	for _, comment := range []string{
		"//", "// ", "/**/", "// locks are taken with \"care\"", "//lock", "// lock with care", "//go:generate go tool lockgen",
		"//lockgen \"a\"", "// lock: with the mutex held", "//nolint:lock", "/* locked */", "// a directive is //lock:with \"a\"", "//lock: x",
		"// Lock \"a\" comes before \"b\".", "// - with \"a\"", "/* locks\n * lock the door */", "// locked \"a\" is taken", "//lock",
		"//\t//lock:with \"a\"", "// //lock:with \"a\"", "////lock:with \"a\"",
	} {
		if is, fault := directive.Recognize(comment); is || fault != nil {
			t.Errorf("%s: taken for a directive: %v", comment, fault)
		}
	}
}

func TestDirectiveThatIsNotReadIsAFault(t *testing.T) {
	for _, comment := range []string{
		`//lock "stock:{sku}"`, "//lock `stock:{sku}` wait=2s", "//with:lock", `//with:lock "stock:{sku}"`, `//lock.with "a"`, `//lockaround:lock "a"`,
		`// - lock:with "stock:{sku}"`, `// * lock:with "a"`, `// lock "stock:{sku}" wait=2s`, "// Lock `a`", `// @lock "a"`, `//go:lock "a"`, `//lockwith "a"`,
		"/* Deduct takes n.\n   lock:with \"stock:{sku}\" */", "/*\n * lock:with \"a\"\n */", "/*\nlock \"a\" wait=2s\n*/", `/* lock:with "a" */`,
		`// lock:with "a"`, `//LOCK:WITH "a"`, `//lock:wiht "a"`, `// lock: with "a"`, `//lock :with "a"`,
	} {
		is, fault := directive.Recognize(comment)
		if is || fault == nil {
			t.Errorf("%s: a directive: %v, %v; want a fault", comment, is, fault)
		} else if fault.At > len(comment) || !strings.Contains(fault.Text, "lock:with") {
			t.Errorf("%s: at %d: %s", comment, fault.At, fault.Text)
		}
	}
}

func TestAPlaceInTheKeyIsFoundInTheComment(t *testing.T) {
	for _, comment := range []string{"//lock:with \"{x}\"", "//lock:with   `é{x}`", `//lock:with "\u00e9\t\\\x41é{x}" wait=1s`} {
		d, faults := directive.Parse(comment)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got, want := d.OffsetOf(strings.Index(d.Key, "{x}")), strings.Index(comment, "{x}"); got != want {
			t.Errorf("%s: %d, want %d", comment, got, want)
		}
	}
}

func FuzzWhatParsesPrintsBackAndParsesEqual(f *testing.F) {
	for _, seed := range []string{
		`//lock:with "stock:{sku}" wait=2s`, "//lock:with `a`", `//lock:with "a\"b" name="x y" mode=semaphore limit=3`,
		`//lock:with "a" norenew=true`, `//lock:with "`, `//lock:with "a" "b`, `//lock:with "a" ="`, "// lock:with \"a\"",
		`//lock:with "a[]" when=needsLock allowempty`, `//lock:with "a" once=refuse keep=24h`, `//lock:with "a" when="x.y"`,
		"/*lock:with*/", `//lock:with "é\u00e9" name="` + "`" + `"`, `//lock: with "a"`, "//lock:with \"\xff\"", `//lock:with "a" name="\xff"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, comment string) {
		is, fault := directive.Recognize(comment)
		if fault != nil && (is || fault.At < 0 || fault.At > len(comment)) {
			t.Fatalf("%q: a fault at %d", comment, fault.At)
		}
		if !is {
			return
		}
		d, faults := directive.Parse(comment)
		for _, fault := range faults {
			if fault.At < len("//") || fault.At > len(comment) {
				t.Errorf("%q: a fault at %d: %s", comment, fault.At, fault.Text)
			}
		}
		if len(faults) > 0 {
			return
		}
		again, faults := directive.Parse(d.String())
		same := slices.EqualFunc(d.Options, again.Options, func(a, b directive.Option) bool { return a.Name == b.Name && a.Value == b.Value })
		if len(faults) > 0 || again.Key != d.Key || again.When != d.When || again.Once != d.Once || again.Keep != d.Keep || !same || !reflect.DeepEqual(again.Policy, d.Policy) {
			t.Errorf("%q is printed as %q: %v", comment, d.String(), faults)
		}
		for i := range len(d.Key) + 1 {
			if at := d.OffsetOf(i); at <= d.KeyAt || at > len(comment) {
				t.Errorf("%q: byte %d of the key stands at %d", comment, i, at)
			}
		}
	})
}
