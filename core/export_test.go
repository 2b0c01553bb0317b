package core

// Known is what errors say of the module's drivers.
var Known = known
