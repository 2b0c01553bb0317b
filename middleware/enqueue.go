package middleware

import (
	"log/slog"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Enqueue returns a handler that queues a request in place of working on it, and answers 202
// with the place in JSON. That of a serial.Func is a queue.Place, an object with id, sequence and ahead: the id is for
// its Status.
//
//	r.POST("/orders/:order/refunds", middleware.Enqueue(func(c *gin.Context) (queue.Place, error) {
//		var req RefundRequest
//		if err := c.ShouldBindJSON(&req); err != nil {
//			c.AbortWithStatus(http.StatusBadRequest) // it is answered
//			return queue.Place{}, err
//		}
//		req.OrderID = c.Param("order")
//		return refunds.Enqueue(c.Request.Context(), req, serial.ItemID(req.ID))
//	}))
//
// An error of a queue or of a lock is answered as by [Answer]. For any other error the answer
// is 500, and the log has the error, unless place has answered the request or aborted its chain. So it is for a place
// that cannot be encoded. Enqueue panics if place is nil.
func Enqueue[Place any](place func(*gin.Context) (Place, error)) gin.HandlerFunc {
	if place == nil {
		panic("middleware.Enqueue: the function is nil; pass one that calls Enqueue of a serial.Func")
	}
	return func(c *gin.Context) {
		p, err := place(c)
		switch {
		case err == nil:
			if !problem.WriteAccepted(c.Writer, c.FullPath(), p) {
				c.Abort()
			}
		case c.Writer.Written() || c.IsAborted():
		case Answer(c, err):
		default:
			c.Abort()
			slog.Default().Error("lockaround: a request was not queued", "route", c.FullPath(), "error", err)
			write(c, problem.Failed())
		}
	}
}
