package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/lockaround/lockaround/decorator/lockvet/analyzers"
)

func main() { unitchecker.Main(analyzers.Analyzers()...) }
