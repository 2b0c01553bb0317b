package policies_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/policies"
)

// FuzzParse: whatever a file holds, it is refused at a place within it, or means
// overrides within the bounds of core.
func FuzzParse(f *testing.F) {
	wrong, err := filepath.Glob("testdata/wrong/*[nl]")
	if err != nil || len(wrong) == 0 {
		f.Fatalf("%d files, %v", len(wrong), err)
	}
	for _, path := range wrong {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("policies:\n  \"stock:{path.sku}\":\n    wait: forever\n    ttl: 10s\n    mode: semaphore\n    limit: 3\n    max_hold: 1m30s\n"))
	f.Add([]byte(`{"policies": {"a": {"wait": "0s", "mode": "shared", "limit": 0}, "b": {"max_hold": "0s"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		byName, err := policies.Parse(data)
		if err != nil {
			var fault *policies.Error
			lines := 1 + bytes.Count(data, []byte{'\n'}) + bytes.Count(data, []byte{'\r'}) + bytes.Count(data, []byte("\u0085")) +
				bytes.Count(data, []byte("\u2028")) + bytes.Count(data, []byte("\u2029"))
			if byName != nil || !errors.As(err, &fault) || fault.Line < 1 || fault.Line > lines+1 || fault.Column < 1 || fault.Column > len(data)+1 || fault.Detail == "" {
				t.Errorf("%q: %v, %v", data, byName, err)
			}
			return
		}
		if byName == nil {
			t.Errorf("%q: neither overrides nor an error", data)
		}
		for name, o := range byName {
			switch {
			case name == "",
				o == core.Override{},
				o.Wait != nil && *o.Wait < 0,
				o.TTL != nil && (*o.TTL <= 0 || *o.TTL > core.MaxTTL),
				o.MaxHold != nil && *o.MaxHold < 0,
				o.Mode != nil && *o.Mode > core.Semaphore,
				o.Limit != nil && (*o.Limit < 0 || *o.Limit > core.MaxLimit),
				o.Limit != nil && o.Mode != nil && (*o.Limit > 0) != (*o.Mode == core.Semaphore):
				t.Errorf("%q: %q has the override %+v", data, name, o)
			}
		}
	})
}
