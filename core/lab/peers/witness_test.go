package main

import (
	"path/filepath"
	"testing"
)

func TestWitnessSeesOverlapsOfAllWhoMapIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "witness")
	var eyes [2]*witness
	for i := range eyes {
		w, err := openWitness(path, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // it is a test's own
		eyes[i] = w
	}
	eyes[0].enter(1)
	eyes[1].enter(2) // another key
	eyes[0].leave(1)
	eyes[1].enter(1) // afterwards
	if n := eyes[0].overlaps(); n != 0 {
		t.Fatalf("%d overlaps were seen; there was none", n)
	}
	eyes[0].enter(1)
	for i, w := range eyes {
		if n := w.overlaps(); n != 1 {
			t.Errorf("witness %d saw %d overlaps; want 1", i, n)
		}
	}
}
