package ensemble

import (
	"fmt"
	"regexp"
)

var number = regexp.MustCompile(`^\d+(\.\d+)+`)

// versionIn returns the version that a server's answer begins with. One that does not serve
// yet answers too, and says something else.
func versionIn(answer string) (string, error) {
	v := number.FindString(answer)
	if v == "" {
		return "", fmt.Errorf("it says %q, which is no version", answer)
	}
	return v, nil
}
