package body

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockaround/lockaround/core"
)

func TestValueIsReadOfBodiesWithOneMeaningOnly(t *testing.T) {
	const doc, form = `{"sku":"a"}`, "sku=a"
	const jsonType, formType = "application/json", "application/x-www-form-urlencoded"
	unreadable := errors.New("unreadable")
	for _, tc := range []struct {
		name     string
		method   string // POST unless given
		content  Content
		types    []string
		encoding string
		length   int64 // as announced
		err      error // the value is "a" if it is nil
	}{
		{name: "JSON", content: Content{Whole: []byte(doc)}, types: []string{jsonType}},
		{name: "JSON in UTF-8", content: Content{Whole: []byte(doc)}, types: []string{jsonType + "; charset=UTF-8"}},
		{name: "JSON in UTF-16", content: Content{Whole: []byte(doc)}, types: []string{jsonType + "; charset=utf-16"}, err: core.ErrInvalid},
		{name: "JSON with DELETE", method: http.MethodDelete, content: Content{Whole: []byte(doc)}, types: []string{jsonType}},
		{name: "JSON with GET", method: http.MethodGet, content: Content{Whole: []byte(doc)}, types: []string{jsonType}, err: core.ErrInvalid},
		{name: "JSON in capitals", content: Content{Whole: []byte(doc)}, types: []string{"Application/JSON"}, err: core.ErrInvalid},
		{name: "form", content: Content{Whole: []byte(form)}, types: []string{formType}},
		{name: "form with PUT", method: http.MethodPut, content: Content{Whole: []byte(form)}, types: []string{formType}},
		{name: "form with PATCH", method: http.MethodPatch, content: Content{Whole: []byte(form)}, types: []string{formType}},
		{name: "form with DELETE", method: http.MethodDelete, content: Content{Whole: []byte(form)}, types: []string{formType}, err: core.ErrInvalid},
		{name: "JSON as a form", content: Content{Whole: []byte(doc)}, types: []string{formType}, err: core.ErrInvalid},
		{name: "form as JSON", content: Content{Whole: []byte(form)}, types: []string{jsonType}, err: core.ErrInvalid},
		{name: "no type", content: Content{Whole: []byte(doc)}, err: core.ErrInvalid},
		{name: "two types", content: Content{Whole: []byte(doc)}, types: []string{jsonType, formType}, err: core.ErrInvalid},
		{name: "malformed type", content: Content{Whole: []byte(doc)}, types: []string{jsonType + ";;"}, err: core.ErrInvalid},
		{name: "another type", content: Content{Whole: []byte(doc)}, types: []string{"text/plain"}, err: core.ErrInvalid},
		{name: "compressed", content: Content{Whole: []byte(doc)}, types: []string{jsonType}, encoding: "gzip", err: core.ErrInvalid},
		{name: "identity", content: Content{Whole: []byte(doc)}, types: []string{jsonType}, encoding: "Identity"},
		{name: "none", types: []string{jsonType}, err: core.ErrMissing},
		{name: "consumed", types: []string{jsonType}, length: 5, err: core.ErrInvalid},
		{name: "failed", content: Content{Err: unreadable}, types: []string{jsonType}, err: unreadable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			r := httptest.NewRequest(tc.method, "/", nil)
			r.ContentLength = tc.length
			r.Header["Content-Type"] = tc.types
			if tc.encoding != "" {
				r.Header.Set("Content-Encoding", tc.encoding)
			}
			for range 2 {
				got, err := tc.content.Value(r, []string{"sku"})
				if !errors.Is(err, tc.err) || (got == "a") != (tc.err == nil) {
					t.Errorf("got %q, %v; want %v", got, err, tc.err)
				}
			}
		})
	}
}
