// Package instruments is the table of what lockaround measures: each instrument with its name, unit,
// attributes and buckets. The engine, the surfaces and the drivers make their instruments of it, and the
// [table for readers] is generated from it.
//
// Programs need it only to name an instrument, as in a View of OpenTelemetry's SDK:
//
//	sdkmetric.NewView(
//		sdkmetric.Instrument{Name: instruments.WaitDuration.Name},
//		sdkmetric.Stream{AttributeFilter: attribute.NewDenyKeysFilter(instruments.ModeKey)},
//	)
//
// # Conventions
//
// Names, units and kinds follow OpenTelemetry's semantic conventions: durations in s, counts in an
// annotated unit such as {item}, names without unit and without "total". Where they deviate, it is because
// a change would break the dashboards of those who have them:
//
//   - lock.handoff would be lock.handoffs: counters of things are in the plural.
//   - lock.held, lock.waiting, lock.lost, lock.queue.dead and lock.queue.parked name a state, and not what
//     is counted; their unit does.
//   - lock.queue.length and lock.leader.leading can be added up, and would be up-down counters. They are
//     read and not added to, for which a gauge is as good: Prometheus has no other word for either. Every process
//     reports the length of the whole queue, so that a sum over processes means nothing.
//   - lock.outcome says how a call ended, well or not. The conventions have error.type for the second, which
//     is the same word, and would be in each series twice. Spans have both.
//   - lock.job.last_success is a time and not a duration. It has the unit s, since 1970.
//   - The conventions have no namespace for locks, and lock may become one of theirs.
//
// [table for readers]: https://github.com/lockaround/lockaround/blob/main/core/README.md#telemetry
package instruments
