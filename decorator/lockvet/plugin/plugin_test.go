package plugin

import (
	"strings"
	"testing"

	"github.com/golangci/plugin-module-register/register"
)

func TestGolangciFindsTheChecks(t *testing.T) {
	makes, err := register.GetPlugin("lockvet")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		settings any
		checks   int
		says     string
	}{
		{nil, 6, ""},
		{map[string]any{}, 6, ""},
		{map[string]any{"disable": []string{"lockbypass", "locktx"}}, 4, ""},
		{map[string]any{"disable": []string{"bypass"}}, 0, "disable has bypass, which is no check; they are"},
		{map[string]any{"enable": []string{"lockctx"}}, 0, `unknown field "enable"`},
	} {
		p, err := makes(tt.settings)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v: said %v, want %s", tt.settings, err, tt.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", tt.settings, err)
			continue
		}
		all, err := p.BuildAnalyzers()
		if err != nil || len(all) != tt.checks {
			t.Errorf("%v: %d checks, %v; want %d", tt.settings, len(all), err, tt.checks)
		}
		if mode := p.GetLoadMode(); mode != register.LoadModeTypesInfo {
			t.Errorf("the mode is %s", mode)
		}
	}
}
