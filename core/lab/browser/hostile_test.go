package browser

import (
	"context"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// hostile are keys and names by which somebody would like to change the page.
var hostile = []string{
	`<script>window.owned=1</script>`,
	`"><img src=http://evil.example/x onerror=window.owned=1>`,
	`' autofocus onfocus=window.owned=1 x='`,
	`</td></tr></table><h1>owned</h1>`,
	`{{.}}${window.owned=1}` + "`",
	`javascript:window.owned=1`,
	"\u202Egnp.exe\u202C \u2066x", "zero\u200bwidth\u00ad\ufeff", "beep\a\x1b[31m\r\n\tline", "\xff\xfe\x00 bytes",
	"مفتاح", "z̸̢̛͍̗͓̔̾", "data: x\n\ndata: {\"d\":[]}\n\nevent: y",
	strings.Repeat("long ", 200),
	strings.Repeat("<b>", 300),
}

type teller struct{ text string }

func (p teller) Panel(context.Context) core.Panel {
	return core.Panel{Title: p.text, Columns: []string{p.text, "ok"}, Rows: [][]any{{p.text, p.text}, {error(nil), 1}}}
}

func TestHostileKeysNamesAndCellsAreText(t *testing.T) {
	var panels []core.Paneler
	for _, text := range hostile {
		panels = append(panels, teller{text + strings.Repeat("x", 10<<10)}, teller{text})
	}
	s := serve(t, nil, lockpage.ShowKeys(), lockpage.WithPanels(panels...))
	for _, text := range hostile {
		key := strings.NewReplacer("{", "(", "}", ")").Replace(text) // a key with braces is refused
		s.hold(core.Policy{Name: text, Key: key})
		s.wait(core.Policy{Name: "waits for " + text, Key: key})
	}
	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("all rows", `document.querySelectorAll('[data-s="key"] tr td.wait time').length >= `+itoa(len(hostile)))
	b.until("all panels", `document.querySelectorAll('[data-s="panel"] > section').length === `+itoa(2*len(hostile)))
	b.inert()
	for _, i := range []int{0, 2, 6, 8, 12, 14} { // a window for each takes its time
		b.do(`document.querySelectorAll('[data-s="key"] a')[` + itoa(i) + `].click()`)
		b.until("the key's page", `location.pathname.endsWith("/key") && document.getElementById("state").textContent === "page is live"`)
		b.inert()
		b.visit(s.url)
		b.live()
	}
	b.clean(s.url)
}

// inert fails the test if a value has become more than text.
func (b *tab) inert() {
	b.t.Helper()
	for what, wrong := range map[string]string{
		"a script of theirs ran":         `window.owned !== undefined`,
		"elements of theirs":             `document.querySelectorAll("main img, main script, main b, main h1 ~ h1, [onerror], [onfocus], [autofocus], iframe").length > 0`,
		"links that lead elsewhere":      `[...document.querySelectorAll("a")].some(a => a.origin !== location.origin)`,
		"characters that cannot be seen": `/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/.test(document.body.innerText)`,
		"a text that is too long":        `[...document.querySelectorAll("main td, main th, main caption, main h1")].some(e => e.textContent.length > 300)`,
	} {
		if eval[bool](b, wrong) {
			b.t.Errorf("%s:\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}
