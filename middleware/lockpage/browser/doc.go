// Package browser tests the page of package lockpage in a real browser, Chromium. It is a module
// of its own for what drives that.
//
//	go test ./middleware/lockpage/browser
//	LOCKAROUND_SCREENSHOTS=1 go test -run Screenshots ./middleware/lockpage/browser # for the page's README
package browser
