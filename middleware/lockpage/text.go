package lockpage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxText is how many characters of a key, a name or a cell are shown.
const maxText = 120

// mostMarks is how many marks a character may have above, below or across it: more would reach
// into the lines beside.
const mostMarks = 2

// printable is a text that others control, as it is shown: without characters that move or
// hide its surroundings, and not too long. html/template escapes it.
func printable(s string) string {
	var b strings.Builder
	shown, marks := 0, 0
	for i, r := range s {
		if shown == maxText {
			fmt.Fprintf(&b, "… (%s bytes)", grouped(int64(len(s))))
			break
		}
		shown++
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case marks > mostMarks:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// brief is a duration to the two or three figures that a reader takes in.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// minutes is the window of counts.
func minutes(d time.Duration) string {
	return fmt.Sprintf("%d minutes", int(d.Round(time.Minute).Minutes()))
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := len(s) % 3
	if strings.HasPrefix(s, "-") {
		from = (len(s)-1)%3 + 1
	}
	var b strings.Builder
	b.WriteString(s[:from])
	for i := from; i < len(s); i += 3 {
		if i > 0 && s[:i] != "-" {
			b.WriteByte(',')
		}
		b.WriteString(s[i : i+3])
	}
	return b.String()
}

// perSecond is a rate.
func perSecond(r float64) string {
	switch {
	case r <= 0:
		return ""
	case r < 0.1:
		return "< 0.1/s"
	case r < 10:
		return fmt.Sprintf("%.1f/s", r)
	}
	return grouped(int64(r)) + "/s"
}

// cell is a value of a panel as text; a time and a duration from then on are for the page.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return printable(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case int:
		return grouped(int64(v))
	case int64:
		return grouped(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Duration:
		return brief(v)
	}
	return printable(fmt.Sprint(v))
}
