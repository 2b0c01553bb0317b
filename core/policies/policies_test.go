package policies_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/policies"
)

func TestEveryFieldThatCanBeOverriddenIsReadFromYAMLAndJSON(t *testing.T) {
	want := map[string]core.Override{
		"stock:{path.sku}": {Wait: new(2 * time.Second), TTL: new(10 * time.Second), Mode: new(core.Shared)},
		"rebuild":          {Mode: new(core.Semaphore), Limit: new(3), MaxHold: new(90 * time.Second)},
		"refund:{id}":      {Wait: new(core.Forever), Mode: new(core.Exclusive), Limit: new(0), MaxHold: new(time.Duration(0)), Release: new(core.Confirmed)},
		"5":                {Wait: new(time.Duration(0)), TTL: new(core.MaxTTL), Limit: new(core.MaxLimit), Release: new(core.Sent)},
	}
	for name, text := range map[string]string{
		"YAML": `# of production
policies:
  stock:{path.sku}:
    wait: 2s
    ttl: '10s'
    mode: shared # readers only
  "rebuild": {mode: semaphore, limit: 3, max_hold: 1m30s}
  ? refund:{id}
  : wait: forever
    mode: exclusive
    limit: 0
    max_hold: 0s
    release: confirmed
  "5":
    wait: 0s
    ttl: 8760h
    limit: 65536
    release: sent
`,
		"YAML with a byte order mark": "\ufeffpolicies:\r\n  stock:{path.sku}: {wait: 2s, ttl: 10s, mode: shared}\r\n" +
			"  rebuild: {mode: semaphore, limit: 3, max_hold: 90s}\r\n  refund:{id}: {wait: forever, mode: exclusive, limit: 0, max_hold: 0s, release: confirmed}\r\n  '5': {wait: 0s, ttl: 8760h, limit: 65536, release: sent}\r\n...\r\n",
		"JSON": `{
	"policies": {
		"stock:{path.sku}": {"wait": "2s", "ttl": "10s", "mode": "shared"},
		"rebuild": {"mode": "semaphore", "limit": 3, "max_hold": "1m30s"},
		"refund:{\u0069d}": {"wait": "forever", "mode": "exclusive", "limit": 0, "max_hold": "0s", "release": "confirmed"},
		"5": {"wait": "0s", "ttl": "8760h", "limit": 65536, "release": "sent"}
	}
}`,
	} {
		if got, err := policies.Parse([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if got, err := policies.Parse([]byte("policies: {}")); err != nil || got == nil || len(got) != 0 {
		t.Errorf("of nothing: %v, %v", got, err)
	}
}

// Beside each wrong file stands what is said of it.
func TestWrongFileIsRefusedAtItsPlaceWithTheCure(t *testing.T) {
	wants, err := filepath.Glob("testdata/wrong/*.want")
	if err != nil || len(wants) < 20 {
		t.Fatalf("%d files, %v", len(wants), err)
	}
	for _, want := range wants {
		path := strings.TrimSuffix(want, ".want")
		t.Run(filepath.Base(path), func(t *testing.T) {
			says, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := policies.Load(path)
			if err == nil || got != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if text := strings.ReplaceAll(err.Error(), filepath.Dir(path)+string(filepath.Separator), "") + "\n"; text != string(says) {
				t.Errorf("got\n%swant\n%s", text, says)
			}
			var fault *policies.Error
			if !errors.As(err, &fault) || fault.File != path || !errors.Is(err, core.ErrPolicy) {
				t.Errorf("%v is no *policies.Error of the file, or no ErrPolicy", err)
			}
		})
	}
}

func TestLoadIsParseOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("policies: {stock: {wait: 2s}}")
	if got, err := policies.Load(path); err != nil || *got["stock"].Wait != 2*time.Second {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := policies.Parse([]byte("policies: {stock: {wait: 2}}")); err == nil || !strings.HasPrefix(err.Error(), "policies:1:26: wait is 2") {
		t.Errorf("without a file: %v", err)
	}
	if _, err := policies.Load(path + "x"); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "lock policies: ") {
		t.Errorf("no file: %v", err)
	}
	if _, err := policies.Load(filepath.Dir(path)); err == nil {
		t.Error("a folder was read")
	}
	write("policies: {} #" + strings.Repeat("x", 1<<20))
	if _, err := policies.Load(path); err == nil || !strings.HasSuffix(err.Error(), "locks.yaml:1:1: the file has more than 1048576 bytes, which no list of policies needs; is it the right file?") {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := policies.Parse([]byte("policies: {} #" + strings.Repeat("x", 1<<20-14))); err != nil {
		t.Errorf("the largest file: %v", err)
	}
}

func TestDeepFileIsRefused(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 1<<20), strings.Repeat("{a: ", 1<<18), strings.Repeat("- ", 1<<19)} {
		if _, err := policies.Parse([]byte(text)); err == nil {
			t.Errorf("%q… was accepted", text[:8])
		}
	}
}

func TestManyFaultsAreToldInPart(t *testing.T) {
	text := "policies:\n" + strings.Repeat("  stock: {wait: 2}\n", 1000)
	_, err := policies.Parse([]byte(text))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "policies:22:3: there are more faults from here on" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

// A field that is new in core.Policy is one that can be overridden, or not.
func TestFieldsOfAPolicyCanBeOverriddenOrAreSaidNotTo(t *testing.T) {
	var can []string
	for f := range reflect.TypeFor[core.Override]().Fields() {
		can = append(can, f.Name)
	}
	for f := range reflect.TypeFor[core.Policy]().Fields() {
		_, err := policies.Parse([]byte("policies: {stock: {" + snake(f.Name) + ": []}}"))
		want := "is stated by the program alone"
		if slices.Contains(can, f.Name) {
			want = snake(f.Name) + " is a list"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", f.Name, err, want)
		}
	}
}

// snake writes a Go name as a configuration does.
func snake(name string) string {
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
