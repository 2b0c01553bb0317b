package rediscache

import "time"

// Check sets how long a subscription may be silent.
func (s *Store) Check(d time.Duration) { s.check = d }
