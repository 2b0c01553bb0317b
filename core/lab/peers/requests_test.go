package main

import (
	"sync/atomic"
	"testing"
)

func TestRequestsAreCountedHoweverTheyArrive(t *testing.T) {
	const stream = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n*1\r\n$4\r\nPING\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n"
	for size := 1; size <= len(stream); size++ {
		var n atomic.Int64
		r := &requests{count: &n}
		for rest := []byte(stream); len(rest) > 0; {
			piece := rest[:min(size, len(rest))]
			r.read(piece)
			rest = rest[len(piece):]
		}
		if n.Load() != 4 {
			t.Fatalf("in pieces of %d bytes there were %d; want 4 and an unfinished one", size, n.Load())
		}
	}
}
