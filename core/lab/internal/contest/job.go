package contest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Job is which peer a worker has.
type Job[Settings any] struct {
	Peer     string   `json:"peer"`
	Settings Settings `json:"settings"`
}

// Told returns what a worker was told that has a job.
func Told[Settings, Open any](told string, peers []Peer[Open]) (p Peer[Open], s Settings, err error) {
	var job Job[Settings]
	if err := json.Unmarshal([]byte(told), &job); err != nil {
		return p, s, err
	}
	i := slices.IndexFunc(peers, func(p Peer[Open]) bool { return p.Name == job.Peer })
	if i < 0 {
		return p, s, fmt.Errorf("there is no peer %q", job.Peer)
	}
	return peers[i], job.Settings, nil
}
