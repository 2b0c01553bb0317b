// Package template makes keys: it parses a key template, binds its placeholders to the values
// of a call, and renders the key.
//
//	t, fault := template.Compile("Key", "stock:{sku}", 1024, template.Fields[deduction])
//	key, fault := t.Render(deduction{SKU: "A:1"}) // stock:A%3A1
//
// Different values make different keys: what a value renders holds no separator, and two
// placeholders have one between them. What users see of this package is in core, and explained
// there.
//
// # Files
//
// In the order in which a template passes them:
//
//	template.go  Compile and Render, the syntax, and how values are escaped
//	fields.go    placeholders that name fields of a Go type
//	kind.go      kinds, as in {path.id:int}: one spelling for one value
//	list.go      lists, as in {ids[]}: one key for each element
package template
