package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/lockaround/lockaround/core"
)

// field is what an override can state.
type field struct {
	name string
	read func(*document, *yaml.Node, *core.Override)
}

var fields = []field{
	{"wait", func(d *document, n *yaml.Node, o *core.Override) { o.Wait = d.wait(n) }},
	{"ttl", func(d *document, n *yaml.Node, o *core.Override) { o.TTL = d.ttl(n) }},
	{"max_hold", func(d *document, n *yaml.Node, o *core.Override) { o.MaxHold = d.maxHold(n) }},
	{"mode", func(d *document, n *yaml.Node, o *core.Override) { o.Mode = d.mode(n) }},
	{"limit", func(d *document, n *yaml.Node, o *core.Override) { o.Limit = d.limit(n) }},
	{"release", func(d *document, n *yaml.Node, o *core.Override) { o.Release = d.release(n) }},
}

var fieldNames = func() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}()

// fixed are the fields of a policy that only its program states.
var fixed = []string{"key", "keys", "allow_empty", "name", "max_waiting", "no_renew", "min_hold", "linger", "reentrant", "tokens", "fairness", "standby"}

// overrides reads a whole file.
func (d *document) overrides(data []byte) map[string]core.Override {
	root := d.root(data)
	if root == nil {
		return nil
	}
	const should = "write policies: and under it the names of policies"
	byName := make(map[string]core.Override)
	d.names = make(map[string]*yaml.Node)
	if isEmpty(root) {
		d.fault(root, "policies is missing; %s", should)
	}
	for e := range d.entries(root, "the file", should) {
		if e.name != "policies" {
			d.fault(e.key, "the file has no field %s; its only one is policies", quote(e.name))
			continue
		}
		for p := range d.entries(e.value, "policies", "write names of policies, and under each what is to be overridden, or {} for nothing") {
			byName[p.name] = d.override(p)
			d.names[p.name] = p.key
		}
	}
	return byName
}

// override reads what is stated about one policy.
func (d *document) override(p entry) (o core.Override) {
	policy, should := "policy "+quote(p.name), "state some of "+strings.Join(fieldNames, ", ")+", or leave the policy out"
	if isEmpty(p.value) {
		d.fault(p.value, "%s states nothing; %s", policy, should)
	}
	var limit *yaml.Node
	for e := range d.entries(p.value, policy, should) {
		i := slices.Index(fieldNames, e.name)
		if i < 0 {
			d.unknown(e)
			continue
		}
		if fields[i].read(d, e.value, &o); e.name == "limit" {
			limit = e.value
		}
	}
	if o.Limit == nil || o.Mode == nil {
		return o // what is missing, the program states
	}
	switch isSemaphore := *o.Mode == core.Semaphore; {
	case isSemaphore && *o.Limit == 0:
		d.fault(limit, "limit is 0, but mode is semaphore; write 1 or more")
	case !isSemaphore && *o.Limit > 0:
		d.fault(limit, "limit is %d, but mode is %s; only a semaphore has a limit, write 0 or remove it", *o.Limit, *o.Mode)
	}
	return o
}

// unknown notes a field that cannot be overridden.
func (d *document) unknown(e entry) {
	can := "what can be overridden is " + strings.Join(fieldNames, ", ")
	if slices.Contains(fixed, e.name) {
		d.fault(e.key, "%s is stated by the program alone; %s", e.name, can)
		return
	}
	if nearest := core.Nearest(e.name, slices.Concat(fieldNames, fixed)); slices.Contains(fieldNames, nearest) {
		can = "did you mean " + nearest + "?"
	}
	d.fault(e.key, "a policy has no field %s; %s", quote(e.name), can)
}

const forever = "forever"

func (d *document) wait(n *yaml.Node) *time.Duration {
	if isText(n) && n.Value == forever {
		return new(core.Forever)
	}
	if isText(n) && core.Nearest(n.Value, []string{forever}) != "" {
		d.fault(n, "wait is %s; did you mean %s?", describe(n), forever)
		return nil
	}
	t, ok := d.time(n, "wait")
	if ok && t < 0 {
		d.fault(n, "wait is %v; write 0s to try once, or %s", t, forever)
		return nil
	}
	return ifOK(t, ok)
}

func (d *document) ttl(n *yaml.Node) *time.Duration {
	t, ok := d.time(n, "ttl")
	if ok && (t <= 0 || t > core.MaxTTL) {
		d.fault(n, "ttl is %v; write a time above 0s, of %v at most", t, core.MaxTTL)
		return nil
	}
	return ifOK(t, ok)
}

func (d *document) maxHold(n *yaml.Node) *time.Duration {
	t, ok := d.time(n, "max_hold")
	if ok && t < 0 {
		d.fault(n, "max_hold is %v; write 0s for no bound", t)
		return nil
	}
	return ifOK(t, ok)
}

// time reads a duration.
func (d *document) time(n *yaml.Node, name string) (time.Duration, bool) {
	const should = "write a time with its unit, such as 2s, 500ms or 1m30s"
	_, notNumber := strconv.ParseFloat(n.Value, 64)
	switch {
	case n.Kind == yaml.ScalarNode && notNumber == nil:
		d.fault(n, "%s is %s, which has no unit; write %ss if seconds are meant", name, describe(n), n.Value)
		return 0, false
	case isText(n) && n.Value == forever:
		d.fault(n, "%s is %s, which only wait can be; %s", name, forever, should)
		return 0, false
	case !isText(n):
		d.fault(n, "%s is %s; %s", name, describe(n), should)
		return 0, false
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil {
		d.fault(n, "%s is %s, which cannot be read as a time; %s; the units are ns, us, ms, s, m and h", name, describe(n), should)
		return 0, false
	}
	return t, true
}

func (d *document) mode(n *yaml.Node) *core.Mode {
	return oneOf(d, n, "mode", core.Exclusive, core.Shared, core.Semaphore)
}

func (d *document) release(n *yaml.Node) *core.ReleaseMode {
	return oneOf(d, n, "release", core.Confirmed, core.Sent)
}

// oneOf reads one of several words.
func oneOf[T fmt.Stringer](d *document, n *yaml.Node, field string, values ...T) *T {
	var names []string
	for _, v := range values {
		if isText(n) && n.Value == v.String() {
			return &v
		}
		names = append(names, v.String())
	}
	should := "write " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	if isText(n) {
		if nearest := core.Nearest(n.Value, names); nearest != "" {
			should = "did you mean " + nearest + "?"
		}
	}
	d.fault(n, "%s is %s; %s", field, describe(n), should)
	return nil
}

func (d *document) limit(n *yaml.Node) *int {
	limit, err := strconv.Atoi(n.Value)
	// Other notations of numbers mean different ones to different readers.
	isNumber := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && err == nil && strconv.Itoa(limit) == n.Value
	if !isNumber || limit < 0 || limit > core.MaxLimit {
		d.fault(n, "limit is %s; write a whole number from 1 to %d, without quotes, or 0 for a mode that has none", describe(n), core.MaxLimit)
		return nil
	}
	return &limit
}

func ifOK[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}
