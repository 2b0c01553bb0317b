package decorator

// SupportsLockgen1 is there so that code of the command lockgen compiles only with a
// library that it goes with; see decorator/lockgen. Where it is not declared, or another
// one is asked for, the two are of different releases: run go generate with the lockgen
// of the release that go.mod requires.
const SupportsLockgen1 = true
