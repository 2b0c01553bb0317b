package dashboards

import (
	"bytes"
	"encoding/json"

	"github.com/lockaround/lockaround/core/instruments"
)

type object = map[string]any

// schemaVersion is that of Grafana 10.0. A later Grafana migrates what it reads.
const schemaVersion = 38

const (
	width    = 24 // of a dashboard, in Grafana's grid
	height   = 8  // of a panel
	inARow   = 3  // panels, at most
	halfARow = 2
)

// Grafana is the dashboard as Grafana imports it.
func Grafana() []byte {
	var panels []object
	id, y := 0, 0
	place := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range Rows() {
		place(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}}, 0, width, 1)
		y++
		columns := inARow
		if len(r.Panels)%halfARow == 0 && len(r.Panels)%inARow != 0 {
			columns = halfARow
		}
		for i, p := range r.Panels {
			place(panel(p), i%columns*(width/columns), width/columns, height)
			if i%columns == columns-1 || i == len(r.Panels)-1 {
				y += height
			}
		}
	}
	held := Family(instruments.Held)
	return indented(object{
		"uid": "lockaround", "title": "lockaround", "tags": []string{"lockaround"}, "schemaVersion": schemaVersion, "version": 1,
		"description": "Locks, queues, caches, jobs and leaders of lockaround. Generated from core/instruments.",
		"editable":    true, "graphTooltip": 1, "refresh": "30s", "timezone": "",
		"time": object{"from": "now-1h", "to": "now"}, "annotations": object{"list": []object{}}, "links": []object{},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1},
			variable("job", "Job", "label_values("+held+", job)"),
			variable("policy", "Policy", "label_values({__name__=~\"lock_.+\",job=~\"$job\"}, "+policy+")"),
		}},
		"panels": panels,
	})
}

// source is the data source that the dashboard's variable names.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// variable is one whose values are labels, any number of them, and at first all.
func variable(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source, "definition": query,
		"query": object{"query": query, "refId": "Variable-" + name}, "refresh": 2, "sort": 1, "hide": 0,
		"multi": true, "includeAll": true, "allValue": ".*", "current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
	}
}

func panel(p Panel) object {
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "expr": q.Expr,
			"legendFormat": q.Legend, "range": true, "exemplar": q.Exemplars,
		})
	}
	return object{
		"type": "timeseries", "title": p.Title, "description": p.Description, "datasource": source, "targets": targets,
		"fieldConfig": object{
			"defaults": object{
				"unit": p.Unit, "min": 0, "color": object{"mode": "palette-classic"},
				"custom": object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto", "spanNulls": false},
			},
			"overrides": []object{},
		},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}

// indented is JSON as it is committed, for readers of a diff.
func indented(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // a map of text, numbers and lists
	}
	return b.Bytes()
}
