// Package beside has tests alone: of locks beside other middlewares and interceptors, in the order that is right
// and in one that is not. README.md says what goes wrong.
package beside
