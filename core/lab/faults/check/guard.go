package check

import "github.com/lockaround/lockaround/core/lab/faults/history"

// guard is S3: the resource admits no token below the largest it has seen, and no
// increment is lost. Those who hold together have tokens in any order: they are refused
// for a larger one of a writer only. Its events are in the order in which they took effect.
func (h *judged) guard() {
	for _, key := range h.keys {
		var largest, writers, counter, accepted int64
		for _, e := range h.guarded[key] {
			least := largest
			if e.Mode != "" {
				least = writers
			}
			switch {
			case e.Error == history.Stale:
				h.report.Figures.Stale++
				if e.Op == history.Write {
					h.report.Figures.StaleWrites++
				}
				if e.Token >= least {
					h.found("S3", key, e.Call, e.Return, "token %d of process %d was refused although no larger one had come", e.Token, e.Process)
				}
				continue
			case !e.OK():
				h.found("S3", key, e.Call, e.Return, "process %d was refused: %s", e.Process, e.Error)
				continue
			case e.Token < least:
				h.report.Figures.Admitted++
				h.found("S3", key, e.Call, e.Return, "token %d of process %d was admitted after %d", e.Token, e.Process, least)
			}
			largest = max(largest, e.Token)
			if e.Mode == "" {
				writers = max(writers, e.Token)
			}
			switch {
			case e.Op == history.Write:
				accepted++
				h.report.Figures.Accepted++
				if e.Value != counter+1 {
					h.found("S3", key, e.Call, e.Return, "process %d (token %d) set the counter from %d to %d: an increment is lost", e.Process, e.Token, counter, e.Value)
				}
				counter = e.Value
			case e.Value != counter:
				h.found("S3", key, e.Call, e.Return, "process %d (token %d) read %d when the counter was %d", e.Process, e.Token, e.Value, counter)
			}
		}
		if counter != accepted {
			h.found("S3", key, 0, h.end, "the counter is %d after %d accepted increments", counter, accepted)
		}
	}
}
