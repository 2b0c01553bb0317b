package kit

import (
	"crypto/fips140"
	"crypto/sha1" // it is how Redis names scripts
	"encoding/hex"
)

// ScriptName returns what EVALSHA of Redis calls a script: its SHA-1, which protects nothing, so that a
// program has it under GODEBUG=fips140=only, too.
func ScriptName(source string) (name string) {
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(source))
		name = hex.EncodeToString(sum[:])
	})
	return name
}
