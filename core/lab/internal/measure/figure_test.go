package measure

import (
	"slices"
	"testing"
)

func TestMedianIsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		in := slices.Clone(c.of)
		if got := Median(in); got != c.want || !slices.Equal(in, c.of) {
			t.Errorf("the median of %v is %v; want %v, and no other order", c.of, got, c.want)
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.000123456: "0.00012", 0.0123456: "0.0123", 0.123: "0.12", 1.234: "1.23", 9.996: "10.0", 12.34: "12.3", 99.96: "100", 1234: "1234", 9994: "9994",
		9996: "10.0 k", 12_345: "12.3 k", 123_456: "123 k", 999_600: "1.00 M", 1_234_567: "1.23 M",
	} {
		if got := Digits(v); got != want {
			t.Errorf("%v is written %q; want %q", v, got, want)
		}
	}
}
