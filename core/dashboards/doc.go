// Package dashboards makes the Grafana dashboard and the Prometheus alerts of lockaround from the table of
// instruments, package instruments. It is for the files beside it, which users download: see the README.
// Programs do not import it, and it is no module that they fetch.
//
// After a change of the table, of a panel or of an alert, go test . -update writes the files anew. The tests
// compare every panel and every alert with what an exporter serves and what Prometheus answers.
package dashboards
