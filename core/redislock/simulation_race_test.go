//go:build race

package redislock_test

// defaultSchedules is what the race detector, which is some ten times slower,
// gets through in about the time that 2,000 take without it.
const defaultSchedules = 150
