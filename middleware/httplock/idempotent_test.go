package httplock

import (
	"testing"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func surface() routetest.Surface {
	return routetest.Surface{Mount: mount, Rest: "b/c", ErrBody: ErrBody, Answered: Answered}
}

func TestIdempotentRoutes(t *testing.T) { routetest.TestOnce(t, surface()) }
