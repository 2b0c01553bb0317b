// Package plugin makes the checks of lockvet a module plugin of golangci-lint. Name it in
// .custom-gcl.yml, build a golangci-lint with it by golangci-lint custom, and enable it:
//
//	# .custom-gcl.yml
//	version: v2.5.0
//	plugins:
//	  - module: github.com/lockaround/lockaround/decorator/lockvet
//	    import: github.com/lockaround/lockaround/decorator/lockvet/plugin
//	    version: latest
//
//	# .golangci.yml
//	linters:
//	  enable: [lockvet]
//	  settings:
//	    custom:
//	      lockvet:
//	        type: module
//	        settings:
//	          disable: [lockbypass] # of all checks; none if it is left out
package plugin

import (
	"fmt"
	"slices"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/lockaround/lockaround/decorator/lockvet/analyzers"
)

func init() { register.Plugin("lockvet", New) }

type settings struct {
	Disable []string `json:"disable"` // names of checks
}

type plugin struct{ checks []*analysis.Analyzer }

// New returns the plugin for the settings of a linter. A name of a check that does not exist, and
// any other setting, is an error.
func New(conf any) (register.LinterPlugin, error) {
	s, err := register.DecodeSettings[settings](conf)
	if err != nil {
		return nil, fmt.Errorf("lockvet: %w", err)
	}
	p := new(plugin)
	var names []string
	for _, a := range analyzers.Analyzers() {
		names = append(names, a.Name)
		if !slices.Contains(s.Disable, a.Name) {
			p.checks = append(p.checks, a)
		}
	}
	for _, name := range s.Disable {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("lockvet: disable has %s, which is no check; they are %q", name, names)
		}
	}
	return p, nil
}

func (p *plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) { return p.checks, nil }

func (p *plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
