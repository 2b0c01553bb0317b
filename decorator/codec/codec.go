// Package codec encodes what a cache or a queue keeps.
package codec

import "encoding/json"

// Codec encodes values. It is safe for concurrent use. The names are those of encoding/json,
// whose functions [JSON] has.
type Codec interface {
	// Marshal returns the bytes that v is stored as.
	Marshal(v any) ([]byte, error)
	// Unmarshal sets the value that v points to by the bytes that Marshal has made.
	Unmarshal(data []byte, v any) error
}

// JSON is the codec of encoding/json.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
