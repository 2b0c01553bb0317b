// Package wrong has wrong uses of locks and what is said of each: README.md, which its test makes.
package wrong
