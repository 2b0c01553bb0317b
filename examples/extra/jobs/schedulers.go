package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
)

// crontab has a tick at every third second of the minute, if that is the period: at the same
// times on every replica. "@every 3s" would count from the start of each process.
func crontab(period time.Duration) string { return fmt.Sprintf("*/%d * * * * *", period/time.Second) }

// schedulers call a job at the ticks until the context ends, and return when no call
// is left.
var schedulers = map[string]func(ctx context.Context, period time.Duration, job func(context.Context) error) error{
	"cron":   withCron,
	"gocron": withGocron,
}

// withCron is for robfig/cron, which takes no error of a job: its status and its metrics
// have it.
func withCron(ctx context.Context, period time.Duration, job func(context.Context) error) error {
	c := cron.New(cron.WithSeconds(), cron.WithLocation(time.UTC))
	if _, err := c.AddFunc(crontab(period), func() { _ = job(ctx) }); err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// withGocron is for go-co-op/gocron, which ends the context of its jobs itself.
func withGocron(ctx context.Context, period time.Duration, job func(context.Context) error) error {
	s, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	const withSeconds = true
	if _, err := s.NewJob(gocron.CronJob(crontab(period), withSeconds), gocron.NewTask(job)); err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return s.Shutdown()
}
