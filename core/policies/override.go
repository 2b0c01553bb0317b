package policies

import (
	"slices"
	"strings"

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
var fixed = []string{"key", "keys", "allow_empty", "name", "no_renew", "min_hold", "linger", "reentrant", "tokens", "fairness"}

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
