package measure

import (
	"math"
	"slices"
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
		return Digits(v) + "/s"
	}
	return strings.TrimSpace(Digits(v) + " " + string(u))
}

// Digits writes three digits of a number, in thousands and millions if it is large.
func Digits(v float64) string {
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

// Median is 0 if there are no values.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
