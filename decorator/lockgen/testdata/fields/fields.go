// Package fields has structs whose fields Go promotes, hides or leaves ambiguous.
package fields

// Plain has fields of all kinds.
type Plain struct {
	A string
	B *int
	C **bool
	D float64
	E []byte
	F struct{ A, G uint8 }
	H *Plain
	I any
	J Named
	K uintptr
	l int
	_ string
}

// Named is a string by its kind.
type Named string

// Promoting has fields of those that it embeds, by value and by pointer.
type Promoting struct {
	*Plain
	lower
	A int
}

type lower struct {
	M string
	n string
}

// Ambiguous has some twice.
type Ambiguous struct {
	One
	*Two
	B string
}

// One is embedded.
type One struct {
	A, B string
	Deep
}

// Two is embedded.
type Two struct {
	A, C string
	*Deep
}

// Deep is embedded twice.
type Deep struct {
	D string
	E int
}

// Recursive embeds itself.
type Recursive struct {
	*Recursive
	Self *Recursive
	A    string
}

// Hiding has a shallow field that hides a deep one, though its own type is no leaf.
type Hiding struct {
	Promoting
	M []string
}

// Number is no struct.
type Number int

// Embedding embeds what is no struct.
type Embedding struct {
	Number
	*Named
	A Number
}

// Tagged names fields by tags, at two depths.
type Tagged struct {
	A    string `lock:"a" json:"x"`
	Deep `lock:"deep"`
	B    *Tagged `lock:"in"`
}

// Shadowing hides a tagged field, and has its tag by another one's promotion.
type Shadowing struct {
	Tagged
	A string
}

// Colliding has a tag that is another field's name.
type Colliding struct {
	A string `lock:"B"`
	B string
}

// Twice has a tag twice.
type Twice struct {
	A string `lock:"a"`
	B string `lock:"a"`
}

// Misnamed has a tag that no template could name.
type Misnamed struct {
	A string `lock:"a.b"`
	B string
}

// Unseen has a tag on a field that is not exported.
type Unseen struct {
	l string `lock:"a"` // for its tag
	B string
}

// Listing has lists of all kinds, and what is none.
type Listing struct {
	A []string
	B []*Plain
	C *[]**Named
	D [3]struct{ A, E []byte }
	E []byte
	F map[string]string
	G [][]string
	H []float64
	I []any
	J []Named
	K []Listing
	L Tagged
	M *[]Tagged
}
