package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
)

// TestMain lets the processes that the program starts be this binary.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") {
		main()
	}
	os.Exit(m.Run())
}

func TestQueueKeepsTheProvidersLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "refunds.svg")
		var out, errs bytes.Buffer
		if status := run(t.Context(), []string{"-svg", file}, &out, &errs); status != 0 {
			t.Fatalf("status %d: %s%s", status, &out, &errs)
		}
		for _, want := range []string{
			"serial.Must             70            0          0             0      0\n",
			" was killed in a refund of order A, and w",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("printed\n%s\nwant %q", &out, want)
			}
		}
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n := bytes.Count(svg, []byte("<title>refund ")); n < 140 {
			t.Errorf("the picture has %d runs", n)
		}
	})
}

func TestProcessesKeepTheProvidersLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	addr := testservers.Redis(t).Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-redis", addr, "-processes", "4"}, &out, &errs); status != 0 || !strings.Contains(out.String(), "serial.Must             70            0          0             0      0\n") {
		t.Errorf("status %d:\n%s%s", status, &out, &errs)
	}
	if keys := rdb.Keys(t.Context(), "*queue*").Val(); len(keys) > 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-processes", "1"}, {"-limit", "1ms"}, {"-takes", "0"}, {"-nonsense"}, {"-redis", "127.0.0.1:1", "-mysql", "shop"}} {
		if status := run(t.Context(), args, io.Discard, io.Discard); status != 2 {
			t.Errorf("%q: status %d; want 2", args, status)
		}
	}
	for store, address := range map[string]string{"-redis": "127.0.0.1:1", "-postgres": "postgres://shop:secret@127.0.0.1:1/shop", "-mysql": "shop:secret@tcp(127.0.0.1:1)/shop"} {
		var errs bytes.Buffer
		if status := run(t.Context(), []string{store, address}, io.Discard, &errs); status != 1 || !strings.Contains(errs.String(), "127.0.0.1:1") || strings.Contains(errs.String(), "secret") {
			t.Errorf("%s, which is down: status %d: %s", store, status, &errs)
		}
	}
}
