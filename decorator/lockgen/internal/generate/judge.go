package generate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
)

// judge asks package core whether policies and templates can work, so that what is
// refused here is what would be refused when the program starts.
type judge struct{ locks *core.Engine }

func newJudge() (*judge, error) {
	locks, err := core.New(anything{}, core.WithNamespace("lockgen"))
	if err != nil {
		return nil, err
	}
	return &judge{locks}, nil
}

func (j *judge) close() { _ = j.locks.Close() } // nothing is held

// policy returns what is wrong with a policy with as many keys as lists, each with a list or
// without, in the words of core but for forever, or nothing. What only some drivers offer is
// not wrong.
func (j *judge) policy(p core.Policy, lists []bool) string {
	p.Key, p.Keys = "", nil
	for i, list := range lists {
		key := fmt.Sprint(i)
		if list {
			key += ":{list[]}"
		}
		p.Keys = append(p.Keys, key)
	}
	_, err := core.NewGuard(j.locks, p, accept)
	return strings.ReplaceAll(detail(err), "core.Forever", "forever")
}

// accept takes any placeholder.
func accept(string) (core.Accessor[struct{}], error) {
	return func(dst []byte, _ struct{}) ([]byte, error) { return dst, nil }, nil
}

// place is where core says that a fault of a template is.
var place = regexp.MustCompile(`^Keys?(?:\[0\])?, column ([0-9]+): `)

// template calls resolve with the name of each placeholder and its offset in the template,
// in their order, and returns what is wrong with the template itself, and where.
func (j *judge) template(text string, resolve func(name string, at int)) (fault string, at int) {
	next := 0
	p := core.Policy{Name: text, Keys: []string{text}}
	_, err := core.NewGuard(j.locks, p, func(name string) (core.Accessor[struct{}], error) {
		next += strings.IndexByte(text[next:], '{') + 1
		resolve(name, next)
		return accept(name)
	})
	fault = strings.ReplaceAll(detail(err), "give each an element of Keys", "give each a directive of its own")
	if found := place.FindStringSubmatch(fault); found != nil {
		fault = fault[len(found[0]):]
		column, _ := strconv.Atoi(found[1])
		for range column - 1 {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
	}
	return fault, at
}

// detail is what is wrong, without where and with which policy.
func detail(err error) string {
	var e *core.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return ""
}

// anything is a driver that offers whatever a policy may ask for.
type anything struct{ driver.Session }

func (anything) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name: "lockgen", Modes: []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		Tokens: driver.DurableTokens, Strict: true, Keep: true, Oust: true, Recall: true,
	}
}

func (a anything) Open(driver.Config) (driver.Session, error) { return a, nil }
func (anything) Close(context.Context) error                  { return nil }
