package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// witness sees who is in a critical section, in all processes of a trial: a file that
// they map into their memory. It costs a few nanoseconds and asks no server, which would
// be slowed down by it.
type witness struct {
	memory []byte
	words  []atomic.Int64
}

const (
	wordOverlaps = iota * wordsPerLine
	wordHolder
	wordReleased
	wordSlots // one for each key
)

const (
	wordBytes    = 8
	wordsPerLine = 16 // of 128 bytes, two cache lines
)

// openWitness maps the file, which it makes large enough for so many keys.
func openWitness(path string, keys int) (*witness, error) {
	words := wordSlots + keys*wordsPerLine
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the mapping outlives it
	if err := file.Truncate(int64(words * wordBytes)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, words*wordBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &witness{memory, unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&memory[0])), words)}, nil
}

// Close ends the mapping: nobody may use the witness any more.
func (w *witness) Close() error { return syscall.Munmap(w.memory) }

func (w *witness) enter(slot int) {
	if w.words[wordSlots+slot*wordsPerLine].Add(1) != 1 {
		w.words[wordOverlaps].Add(1)
	}
}

func (w *witness) leave(slot int) { w.words[wordSlots+slot*wordsPerLine].Add(-1) }

// overlaps is how many entered while another one was in.
func (w *witness) overlaps() int64 { return w.words[wordOverlaps].Load() }

// holder is the process that had the lock last, from 1.
func (w *witness) holder() *atomic.Int64 { return &w.words[wordHolder] }

// release notes the Unix time in ns at which the holder wished to unlock.
func (w *witness) release(at int64) { w.words[wordReleased].Store(at) }

func (w *witness) released() int64 { return w.words[wordReleased].Load() }
