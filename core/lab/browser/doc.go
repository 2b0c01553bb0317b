// Package browser tests the page of package lockpage in a real browser, Chromium. It is here for
// what drives that.
//
//	go test ./core/lab/browser
//	LOCKAROUND_SCREENSHOTS=1 go test -run Screenshots ./core/lab/browser # for the page's README
package browser
