//go:build !jsoniter && !go_json && !sonic

package middleware

// errDecoder is nil: gin decodes JSON as encoding/json does, and so does {body.…}.
var errDecoder error
