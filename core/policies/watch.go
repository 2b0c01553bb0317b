package policies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

// DefaultInterval is how often Watch reads the file if it is not told.
const DefaultInterval = 10 * time.Second

// Watch puts what is in a file in the place of the engine's overrides whenever that changes,
// until ctx ends; then it returns nil. It runs on the caller's goroutine:
//
//	overrides, err := policies.Load("locks.yaml")
//	…
//	locks, err := core.New(driver, core.WithOverrides(overrides))
//	…
//	go policies.Watch(ctx, locks, "locks.yaml", 0)
//
// The file is read every interval, and 0 means [DefaultInterval]; nothing else tells of a
// change, so that it may be written in place, renamed over, or be a symbolic link that changes,
// as those of a Kubernetes ConfigMap do. A change is taken once two readings have found the
// same, so that nobody meets a file half written: after two intervals at most. What is no
// regular file, such as a directory, a named pipe or a device, cannot be read.
//
// [core.Engine.ReplaceOverrides] says what can change and what calls under way have. All of a
// file is taken or nothing. If the file cannot be read, is malformed, or asks for what a policy
// cannot have, the overrides from before stay, and the engine's log says so once, with the
// place of every fault. A policy with a literal key, of [core.Engine.Do] or Acquire, is not
// checked when a file is taken: if the file asks for what it cannot have, its next call fails
// with a core.ErrPolicy. The log also says that a file was taken, and warns of the names in it that
// no policy has.
//
// The error is not nil for a nil engine, for one that was made without [core.WithOverrides], and for
// an interval below a millisecond.
func Watch(ctx context.Context, locks *core.Engine, path string, interval time.Duration) error {
	switch {
	case locks == nil:
		return fmt.Errorf("lock policies: %w: watch %s: the engine is nil; use the one that core.New returned", core.ErrPolicy, path)
	case !locks.TakesOverrides():
		return fmt.Errorf("lock policies: %w: watch %s: the engine was made without overrides to replace; give core.New WithOverrides, of an empty map if there are none yet", core.ErrPolicy, path)
	case interval == 0:
		interval = DefaultInterval
	case interval < time.Millisecond:
		return fmt.Errorf("lock policies: %w: watch %s every %v: use a millisecond or more, or 0 for %v", core.ErrPolicy, path, interval, DefaultInterval)
	}
	w := watcher{locks: locks, path: path}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		w.look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watcher is what Watch knows of its file.
type watcher struct {
	locks *core.Engine
	path  string

	before reading // the last one
	seen   bool    // there is one
	acted  bool    // upon it
}

// reading is what is in the file, or why that cannot be read.
type reading struct {
	data  []byte
	fault string
}

// read reads the file. Of what is no regular file, a reading might never end.
func (w *watcher) read() ([]byte, error) {
	info, err := os.Stat(w.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock policies: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("lock policies: watch %s: it is no regular file (%v); give the path of one, or of a link to one", w.path, info.Mode())
	}
	return read(w.path)
}

// look reads the file, and acts upon what it finds there for the second time.
func (w *watcher) look() {
	var now reading
	data, err := w.read()
	if now.data = data; err != nil {
		now.fault = err.Error()
	}
	if !w.seen || now.fault != w.before.fault || !bytes.Equal(now.data, w.before.data) {
		w.before, w.seen, w.acted = now, true, false
		return
	}
	if w.acted {
		return
	}
	w.acted = true
	if err == nil {
		err = w.take(data)
	}
	if err != nil {
		w.locks.Logger().Error("lockaround: the overrides in a file were refused, and the previous ones stay in force", "file", w.path, "error", err.Error())
	}
}

// take replaces the engine's overrides by those of the file.
func (w *watcher) take(data []byte) error {
	d := &document{file: w.path}
	overrides := d.overrides(data)
	if len(d.faults) > 0 {
		return errors.Join(d.faults...)
	}
	before := w.locks.Overrides()
	if err := w.locks.ReplaceOverrides(overrides); err != nil {
		return d.placed(err)
	}
	if changed := changed(before, overrides); len(changed) > 0 {
		w.locks.Logger().Info("lockaround: the overrides in a file were taken", "file", w.path, "policies", len(overrides), "changed", strings.Join(changed, ", "))
	}
	if err := w.locks.CheckOverrides(); err != nil {
		w.locks.Logger().Warn("lockaround: a file overrides policies that the program does not have, or has not used so far", "file", w.path, "error", d.placed(err).Error())
	}
	return nil
}

// changed are the names of policies whose overrides differ, sorted; at most mostChanged of them.
func changed(before, now map[string]core.Override) (names []string) {
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, had := before[name]
		is, has := now[name]
		if had == has && reflect.DeepEqual(was, is) {
			continue
		}
		if names = append(names, name); len(names) > mostChanged {
			return append(names[:mostChanged], "and others")
		}
	}
	return names
}

// mostChanged is how many policies a line of the log names.
const mostChanged = 20

// placed gives the errors of policies their places in the file.
func (d *document) placed(err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if _, one := err.(*core.Error); one || !ok { //nolint:errorlint // the tree is walked here
		return d.place(err)
	}
	var placed []error
	for _, err := range all.Unwrap() {
		placed = append(placed, d.place(err))
	}
	return errors.Join(placed...)
}

// place gives an error of a policy its place in the file, if the file has it.
func (d *document) place(err error) error {
	var e *core.Error
	if !errors.As(err, &e) {
		return err
	}
	if n := d.names[e.Policy]; n != nil {
		return &Error{File: d.file, Line: n.Line, Column: n.Column, Detail: err.Error()}
	}
	return err
}
