package body

import "net/http"

// KeepForms carries what handlers have parsed from inner, a copy of outer, over
// to outer, which net/http knows: it deletes the temporary files of that one's
// MultipartForm. inner may be nil.
func KeepForms(outer, inner *http.Request) {
	if inner == nil {
		return
	}
	if inner.MultipartForm != nil {
		outer.MultipartForm = inner.MultipartForm
	}
	if inner.Form != nil {
		outer.Form = inner.Form
	}
	if inner.PostForm != nil {
		outer.PostForm = inner.PostForm
	}
}
