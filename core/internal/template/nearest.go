package template

import "strings"

// Nearest returns the one of known that is spelt most like name, as core.Nearest says.
func Nearest(name string, known []string) string {
	nearest, distance := "", 1+len(name)/3
	for _, k := range known {
		if d := spellingDistance(plainSpelling(name), plainSpelling(k)); d <= distance && (nearest == "" || d < distance) {
			nearest, distance = k, d
		}
	}
	return nearest
}

// plainSpelling makes product_id and ProductID the same.
func plainSpelling(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// spellingDistance is the number of bytes to insert, delete or replace to turn
// a into b (Levenshtein).
func spellingDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
