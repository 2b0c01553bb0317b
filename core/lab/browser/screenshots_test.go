package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// TestScreenshots makes the pictures of the page's README.
func TestScreenshots(t *testing.T) {
	if os.Getenv("LOCKAROUND_SCREENSHOTS") == "" {
		t.Skip("LOCKAROUND_SCREENSHOTS=1 makes the pictures of the README anew")
	}
	server := testservers.Redis(t)
	addr := server.Addr()
	s := onRedis(t, addr, "shop-1", lockpage.ShowKeys(), lockpage.WithRelease(func(*http.Request) (string, bool) { return "dana", true }))
	for _, name := range []string{"shop-2", "shop-3", "shop-4"} {
		defer startProcess(t, addr, name)()
	}
	gone := startProcess(t, addr, "shop-5")
	s.hold(core.Policy{Name: "report", Key: "report:daily"})
	b := open(t)
	b.visit(s.url)
	b.live()
	time.Sleep(50 * time.Second)
	gone()
	b.until("a process to be gone", `document.querySelector("tr.gone") !== null`)
	for _, shot := range []struct {
		name          string
		width, height int64
		dark          bool
		key           bool
		failing       bool
	}{
		{"light.png", 1280, 760, false, false, false},
		{"dark.png", 1280, 760, true, false, false},
		{"narrow.png", 390, 780, false, false, false},
		{"key.png", 1280, 860, false, true, false},
		{"failing.png", 1280, 760, false, false, true},
		{"failing-narrow.png", 500, 900, true, false, true},
	} {
		scheme := "light"
		if shot.dark {
			scheme = "dark"
		}
		b.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: shot.width, Height: shot.height, DeviceScaleFactor: 1, Mobile: shot.width < 500}),
			command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
		if shot.key {
			b.do(`document.querySelector('[data-s="key"] a').click()`)
			b.until("the key's page", `location.pathname.endsWith("/key") && document.getElementById("state").textContent === "page is live"`)
			b.until("its events", `document.querySelectorAll('[data-s="event"] tr').length > 20`)
		}
		if shot.name == "failing.png" {
			b.visit(s.url)
			b.live()
			server.Kill()
			time.Sleep(20 * time.Second) // until all others have been silent for long
			b.until("the alarm", `document.querySelector(".alarm") !== null`)
		}
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("../../../middleware/lockpage/pictures", shot.name), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server.Restart()
	time.Sleep(2 * time.Second) // until go-redis, which dials once a second, has noticed
}
