//go:build jsoniter || go_json || sonic

package middleware

import "errors"

// errDecoder: jsoniter takes names with equal hashes for one, and go-json reads numbers
// that are too large for their fields, to name what is known.
var errDecoder = errors.New("the key has a {body.…} placeholder, but gin is built with the tag jsoniter, go_json or sonic," +
	" and its decoder may read another value in the same JSON than was locked; build without the tag, or use Locked, which decodes once")
