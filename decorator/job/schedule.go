package job

import (
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
)

// Schedule says when the replicas start a [Must]: each one at the same ticks, which are
// times of its clock. Only Every is required.
type Schedule struct {
	// Every is the shortest time between two ticks, such as 23 h for "daily" in a
	// place with summer time. At most MaxEvery.
	Every time.Duration

	// Skew is the largest difference between the moments at which two replicas call Run
	// for the same tick: by what their clocks differ, and how late their schedulers are.
	// Zero says that there is none to check for; half of Every less Wait is borne anyhow
	// unless the policy has a MinHold of its own.
	Skew time.Duration

	// MaxRun bounds a run: the context that the function gets has that deadline. The key
	// stays taken until the function returns, so that one which does not heed its
	// context keeps the job from running anywhere until its process ends; that shows in
	// the time of the last success. Zero is Every. With CatchUp it is required.
	MaxRun time.Duration

	// CatchUp lets another replica run the tick if the one that runs it dies. For that the
	// others wait in Run for the policy's Wait, also if the tick was run meanwhile:
	// they do not know.
	CatchUp bool
}

// MaxEvery is the largest Every of a [Schedule].
const MaxEvery = 2 * core.MaxTTL

// fill completes the schedule and a policy that the engine has found possible, as far as
// they leave something open. The fault is what cannot work, or empty.
func (s *Schedule) fill(p *core.Policy) (fault string) {
	switch {
	case s.Every <= 0:
		return fmt.Sprintf("Schedule.Every is %v; set it to the shortest time between two ticks", s.Every)
	case s.Every < time.Millisecond:
		return fmt.Sprintf("Schedule.Every is %v; durations have units, as in %d*time.Second", s.Every, s.Every.Nanoseconds())
	case s.Every > MaxEvery:
		return fmt.Sprintf("Schedule.Every is %v; at most %v is possible", s.Every, MaxEvery)
	case s.Skew < 0:
		return fmt.Sprintf("Schedule.Skew is %v; use 0 if the replicas call Run at the same time", s.Skew)
	case s.MaxRun < 0:
		return fmt.Sprintf("Schedule.MaxRun is %v; use 0 for Every, which is %v", s.MaxRun, s.Every)
	case s.CatchUp && s.MaxRun == 0:
		return "Schedule.CatchUp is set without MaxRun; set it to the longest that a run may take, for so long the other replicas wait"
	case s.CatchUp && s.MaxRun >= s.Every:
		return fmt.Sprintf("Schedule.MaxRun is %v, but the next tick comes after %v; with CatchUp a tick is over before that, run by another replica or not", s.MaxRun, s.Every)
	case p.Mode != core.Exclusive:
		return fmt.Sprintf("Mode is %s; a job that one replica runs is exclusive", p.Mode)
	case p.NoRenew:
		return "NoRenew is set; a run keeps its key by renewal, whatever it takes; use Schedule.MaxRun to bound it"
	case p.Linger > 0:
		return fmt.Sprintf("Linger is %v; a job keeps its key after a run by MinHold; use 0", p.Linger)
	case p.Wait > 0 && !s.CatchUp:
		return fmt.Sprintf("Wait is %v without Schedule.CatchUp; a replica that finds the tick taken has nothing to wait for; use 0, or set CatchUp", p.Wait)
	}
	if s.MaxRun == 0 {
		s.MaxRun = s.Every
	}
	if p.MinHold == 0 {
		p.MinHold = s.Every / 2
	}
	if s.CatchUp && p.Wait == 0 {
		p.Wait = s.MaxRun + 2*p.TTL
	}
	return s.fits(p)
}

// fits checks that no tick is run twice, or lost, for want of time. The fault is empty if
// none is.
func (s *Schedule) fits(p *core.Policy) (fault string) {
	asking := fmt.Sprintf("Skew %v", s.Skew) // how long after the first replica's call another one may ask for the tick
	remedy := fmt.Sprintf("use MinHold 0 for half of Every, %v, and have a smaller Skew than that", s.Every/2)
	if s.CatchUp {
		asking = fmt.Sprintf("Skew %v and Wait %v together", s.Skew, p.Wait)
		remedy = fmt.Sprintf("use MinHold 0 for half of Every, %v, and have Skew, MaxRun %v and twice the TTL %v shorter than that together, or leave CatchUp out", s.Every/2, s.MaxRun, p.TTL)
	}
	switch {
	case p.MaxHold > 0 && p.MaxHold < p.MinHold:
		return fmt.Sprintf("MaxHold is %v, but MinHold keeps the key for %v; use MaxHold 0 and Schedule.MaxRun to bound a run", p.MaxHold, p.MinHold)
	case s.CatchUp && p.Wait-p.TTL <= s.MaxRun:
		return fmt.Sprintf("Wait is %v; a replica that dies at the end of MaxRun %v leaves the key taken for the TTL %v, and the others must wait for longer than both together", p.Wait, s.MaxRun, p.TTL)
	case p.Wait >= s.Every:
		return fmt.Sprintf("Wait is %v, but the next tick comes after %v; %s", p.Wait, s.Every, remedy)
	case s.Skew >= p.MinHold-p.Wait:
		return fmt.Sprintf("%s must be shorter than MinHold %v, or a replica could run a tick that another one has run; %s", asking, p.MinHold, remedy)
	case s.Skew > s.Every-p.Wait-p.MinHold:
		return fmt.Sprintf("%s with MinHold %v must be no longer than Every %v, or the key could be taken when the next tick comes, and that be lost; %s", asking, p.MinHold, s.Every, remedy)
	}
	return ""
}
