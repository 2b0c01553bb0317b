//go:build !race

package redislock_test

const defaultSchedules = 2000
