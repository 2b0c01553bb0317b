package middleware

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// eager takes anything from every format.
type eager struct {
	ID    string         `json:"id" xml:"id" yaml:"id" toml:"id" form:"id"`
	Extra any            `json:"extra" xml:"-" yaml:"extra" toml:"extra" form:"-"`
	Map   map[string]any `json:"map" xml:"-" yaml:"map" toml:"map" form:"-"`
	List  []any          `json:"list" xml:"-" yaml:"list" toml:"list" form:"-"`
}

// merges is a document in YAML in which each mapping has all entries of the one before.
func merges(mappings int) string {
	var b strings.Builder
	b.WriteString("id: a\nmap:\n  m0: &m0 {k0: 1}\n")
	for i := 1; i < mappings; i++ {
		fmt.Fprintf(&b, "  m%d: &m%[1]d {<<: *m%d, k%[1]d: 1}\n", i, i-1)
	}
	return b.String()
}

// No body may cost much more than its length: neither memory, nor the stack of a decoder
// that follows it.
func TestHostileDocumentsCostLittle(t *testing.T) {
	const mib = 1 << 20
	nested := func(before, open, within, closing string, n int) string {
		return before + strings.Repeat(open, n) + within + strings.Repeat(closing, n)
	}
	for name, tc := range map[string]struct {
		contentType, body string
	}{
		"YAML, merge keys, 14 kB":     {"application/x-yaml", merges(400)},
		"YAML, merge keys, 70 kB":     {"application/x-yaml", merges(2000)},
		"YAML, aliases":               {"application/yaml", "id: a\nextra: [&x [1,2,3,4,5,6,7,8,9],&y [*x,*x,*x,*x,*x],&z [*y,*y,*y,*y],[*z,*z,*z,*z]]\n"},
		"YAML, brackets":              {"application/yaml", nested("id: a\nextra: ", "[", "", "]", 500_000)},
		"YAML, braces":                {"application/yaml", nested("id: a\nextra: ", "{a: ", "1", "}", 200_000)},
		"YAML, dashes":                {"application/yaml", nested("id: a\nextra: \n  ", "- ", "1", "", 500_000)},
		"YAML, questions":             {"application/yaml", nested("id: a\nextra: \n  ", "? ", "1", "", 500_000)},
		"YAML, unclosed":              {"application/yaml", nested("id: a\nextra: ", "[", "", "", 1_000_000)},
		"YAML, wide":                  {"application/yaml", "id: a\nextra: [" + strings.Repeat("[],", 300_000) + "]"},
		"YAML, keys that come twice":  {"application/yaml", "id: 1\n" + strings.Repeat("a:\n", 4000)},
		"YAML, a second document":     {"application/yaml", "id: 1\n---\n" + strings.Repeat("[", 50_000)},
		"TOML, many tables":           {"application/toml", strings.Repeat("[[extra]]\n", 20_000)},
		"TOML, brackets":              {"application/toml", nested("id = 'a'\nextra = ", "[", "", "]", 500_000)},
		"TOML, braces":                {"application/toml", nested("id = 'a'\nextra = ", "{a=", "1", "}", 250_000)},
		"TOML, dots":                  {"application/toml", "id = 'a'\nmap" + strings.Repeat(".a", 500_000) + " = 1"},
		"TOML, table":                 {"application/toml", "id = 'a'\n[map" + strings.Repeat(".a", 500_000) + "]\nx = 1"},
		"TOML, array of tables":       {"application/toml", "id = 'a'\n[[map" + strings.Repeat(".a", 500_000) + "]]\nx = 1"},
		"TOML, dots with blanks":      {"application/toml", "id = 'a'\nmap" + strings.Repeat(" . 'a'", 150_000) + " = 1"},
		"TOML, brackets after quotes": {"application/toml", nested("id = \"\"\"\\\"\"\"\"\"\nextra = ", "[", "", "]", 400_000)},
		"TOML, unclosed":              {"application/toml", nested("extra = ", "[", "", "", 1_000_000)},
		"XML, nested":                 {"application/xml", nested("<e><id>a</id>", "<a>", "", "</a>", 140_000) + "</e>"},
		"XML, unclosed":               {"application/xml", nested("<e><id>a</id>", "<a>", "", "", 300_000)},
		"XML, attributes":             {"application/xml", "<e " + strings.Repeat("a='' ", 200_000) + "><id>a</id></e>"},
		"JSON, brackets":              {"application/json", nested(`{"id":"a","extra":`, "[", "", "]", 500_000) + "}"},
		"JSON, braces":                {"application/json", nested(`{"id":"a","extra":`, `{"a":`, "1", "}", 150_000) + "}"},
		"JSON, wide":                  {"application/json", `{"id":"a","extra":[` + strings.Repeat("[],", 300_000) + "[]]}"},
		"JSON, names":                 {"application/json", `{"id":"a","map":{` + strings.Repeat(`"a":{},`, 140_000) + `"b":1}}`},
		"form, names":                 {"application/x-www-form-urlencoded", "id=a" + strings.Repeat("&a=", 300_000)},
		"form, parts":                 {"multipart/form-data; boundary=b", strings.Repeat("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", 20_000) + "--b--\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tc.body) > mib {
				tc.body = tc.body[:mib]
			}
			e, _ := routetest.Open(t)
			r := gin.New()
			r.POST("/", Locked(e, core.Policy{Key: "{ID}"}, func(c *gin.Context, _ eager) { c.Status(http.StatusNoContent) }))
			req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.body))
			req.Header.Set("Content-Type", tc.contentType)
			w := httptest.NewRecorder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.ServeHTTP(w, req)
			runtime.ReadMemStats(&after)
			allocated, stack := after.TotalAlloc-before.TotalAlloc, int64(after.StackSys)-int64(before.StackSys)
			t.Logf("%d bytes: status %d, %d MiB allocated, %d MiB of stack", len(tc.body), w.Code, allocated/mib, stack/mib)
			if w.Code >= 500 {
				t.Errorf("status %d", w.Code)
			}
			if allocated > 200*mib || stack > 64*mib {
				t.Errorf("%d bytes cost %d MiB and %d MiB of stack", len(tc.body), allocated/mib, stack/mib)
			}
		})
	}
}
