package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLinesAreOnLogarithmicScales(t *testing.T) {
	drawn, err := Lines{Title: "a < b", Curves: []Curve{
		{Name: "x", Mine: true, Points: []Point{{1, 100, 100, 100}, {4, 10_000, 10_000, 10_000}, {16, 1000, 1000, 1000}}},
	}}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	// 4 is in the middle between 1 and 16, and 1000 between 100 and 10,000.
	for _, want := range []string{`d="M56.0 320.0L323.0 44.0L590.0 182.0"`, ">100<", ">1 k<", ">10 k<", ">16<", "a &lt; b"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("there is no %s in\n%s", want, drawn)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesOfLinesAreApart(t *testing.T) {
	at := func(y float64) []Point { return []Point{{1, y, y, y}, {2, y, y, y}} }
	curves := []curve{{Name: "low", Label: 100}, {Name: "high", Label: 98}, {Name: "far", Label: 20}}
	spread(curves)
	if curves[2].Label != 20 || curves[1].Label != 98 || curves[0].Label != 98+nameApart {
		t.Errorf("the names are at %+v", curves)
	}
	if drawn, err := (Lines{Curves: []Curve{{Name: "one height", Points: at(7)}}}).SVG(); err != nil || strings.Contains(drawn, "NaN") {
		t.Errorf("a line of one height is %v\n%s", err, drawn)
	}
	if drawn, err := (Lines{Curves: []Curve{{Name: "none"}}}).SVG(); drawn != "" || err != nil {
		t.Errorf("no points are %q, %v", drawn, err)
	}
}
