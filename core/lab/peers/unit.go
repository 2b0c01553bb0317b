package main

import (
	"math"
	"strconv"
	"strings"
)

// Unit is what a figure counts.
type Unit string

// The units.
const (
	PerSecond    Unit = "/s"
	Milliseconds Unit = "ms"
	Microseconds Unit = "µs"
	Trips        Unit = "trips"
	Times        Unit = "×"
	Percent      Unit = "%"
	Bytes        Unit = "B"
	Each         Unit = ""
)

// Format writes a figure with three digits and its unit.
func (u Unit) Format(v float64) string {
	if u == PerSecond {
		return digits(v) + "/s"
	}
	return strings.TrimSpace(digits(v) + " " + string(u))
}

// digits writes three digits of a number, in thousands and millions if it is large.
func digits(v float64) string {
	suffix := ""
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v >= 999_500:
		v, suffix = v/1e6, " M"
	case v >= 9_995:
		v, suffix = v/1e3, " k"
	}
	decimals := 0
	switch {
	case v > 0 && v < 0.009995:
		decimals = 5
	case v > 0 && v < 0.09995:
		decimals = 4
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + suffix
}
