package memlock

import "github.com/lockaround/lockaround/core/driver"

// remembered is how many of the latest ended owners a shard knows at least; it
// knows at most twice as many.
const remembered = 256

// ended remembers owners that are over, in two generations: when the younger
// one is full the older one is forgotten.
type ended struct {
	young, old map[driver.Owner]end
}

// end says how an owner ended.
type end uint8

const (
	released end = iota + 1 // by a release of a lease that it held
	over                    // otherwise: expired, replaced by force, withdrawn
)

// how returns how the owner ended, or 0 if it is not known to have ended.
func (e *ended) how(o driver.Owner) end {
	if h := e.young[o]; h != 0 {
		return h
	}
	return e.old[o]
}

// add records an end. The first one recorded stands.
func (e *ended) add(o driver.Owner, h end) {
	if e.how(o) != 0 {
		return
	}
	if len(e.young) >= remembered || e.young == nil {
		e.young, e.old = e.old, e.young
		if e.young == nil {
			e.young = make(map[driver.Owner]end)
		}
		clear(e.young)
	}
	e.young[o] = h
}
