// Package dashboards makes the Grafana dashboard and the Prometheus alerts of lockaround from the table of
// instruments, package instruments. It writes the files in core/dashboards, which users download: see the
// README there. Programs do not import it, and it is in no module that they fetch.
//
// After a change of the table, of a panel or of an alert, write the files anew:
//
//	go test ./core/lab/dashboards -update
//
// The tests compare every panel and every alert with what an exporter serves and what Prometheus answers.
package dashboards
