package middleware

import (
	"errors"
	"mime"
	"net/http"
	"reflect"
	"slices"

	"github.com/gin-gonic/gin/binding"
)

// formatTags are the struct tags of the formats in which a body or query is decoded;
// bodyTags adds those of formats that gin would decode as well, and sourceTags those of
// the other parts of a request. Decoders of YAML and TOML need time and memory for a
// body of a few kilobytes that a server does not have: for keys that come twice, or are
// many, for aliases, for nesting. They are made for files of one's own.
var (
	formatTags = []string{"json", "xml", "form"}
	bodyTags   = append(slices.Clone(formatTags), "yaml", "toml")
	sourceTags = append(slices.Clone(bodyTags), "header", "uri")
)

// formatOf returns the tag of the format that gin binds such a request by, and
// whether that means to read its body.
func formatOf(r *http.Request, contentType string) (tag string, readsBody bool, err error) {
	switch name := binding.Default(r.Method, contentType).Name(); name {
	case "json", "xml":
		return name, true, nil
	case "multipart/form-data":
		return "form", true, nil
	case "form":
		// net/http finds the type by its own rules.
		media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // it reads what it can make of a malformed one, too
		switch media {
		case binding.MIMEMultipartPOSTForm:
			readsBody = true
		case binding.MIMEPOSTForm:
			readsBody = r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
		}
		return "form", readsBody, nil
	}
	return "", false, errors.New("the body's Content-Type cannot be bound into a struct; use JSON, XML or a form")
}

// namedBy returns the sources that a field's tags name, or nil if it has no tag
// of any source. A tag "-" names none.
func namedBy(tag reflect.StructTag) map[string]bool {
	var named map[string]bool
	for _, source := range sourceTags {
		if value, ok := tag.Lookup(source); ok {
			if named == nil {
				named = make(map[string]bool)
			}
			named[source] = value != "-"
		}
	}
	return named
}
