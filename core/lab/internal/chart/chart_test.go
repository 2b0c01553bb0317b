package chart

import (
	"strings"
	"testing"
)

func TestGroupsShareAScaleUnlessTheyAreApart(t *testing.T) {
	c := Chart{Title: "t", Groups: []Group{
		{Title: "a", Bars: []Bar{{Name: "x", Value: 100, Min: 100, Max: 100}}},
		{Title: "b", Bars: []Bar{{Name: "x", Value: 10, Min: 10, Max: 10}}},
	}}
	for apart, want := range map[bool]string{false: `width="43.0"`, true: `width="430.0"`} {
		c.Apart = apart
		drawn, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if rest := drawn[strings.Index(drawn, `width="430.0"`)+1:]; !strings.Contains(rest, want) {
			t.Errorf("apart %v: the second bar has no %s:\n%s", apart, want, drawn)
		}
	}
}

func TestLongNamesHaveRoom(t *testing.T) {
	c := Chart{Groups: []Group{{Bars: []Bar{{Name: "a name of 20 letters", None: true, Text: "failed"}}}}}
	drawn, err := c.SVG()
	if err != nil || !strings.Contains(drawn, `viewBox="0 0 770 `) || !strings.Contains(drawn, `class="name" x="150"`) {
		t.Errorf("the chart is %v\n%s", err, drawn)
	}
}

func TestNothingIsNoChart(t *testing.T) {
	if drawn, err := (Chart{Title: "t"}).SVG(); drawn != "" || err != nil {
		t.Errorf("it is %q, %v", drawn, err)
	}
}
