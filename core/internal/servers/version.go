package servers

import (
	"fmt"
	"regexp"
)

var versions = regexp.MustCompile(`\d+(\.\d+)+`)

// versionIn returns the version that a server's answer begins with. One that does not serve
// yet answers too, and says something else.
func versionIn(answer string) (string, error) {
	at := versions.FindStringIndex(answer)
	if at == nil || at[0] != 0 {
		return "", fmt.Errorf("it says %q, which is no version", answer)
	}
	return answer[:at[1]], nil
}
