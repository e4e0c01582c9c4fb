// Package oracle records Kueue's decisions, for Switchyard's engine to be compared with.
//
// It plays scenarios on Kueue's own cache, queue manager and scheduler (a Go module). A scenario is
// a set of objects, and steps that edit them. No API server and no controller runs: this package
// passes each edit to the cache and the queues as Kueue's controllers do. `cargo xtask
// fuzz-decisions` plays the same scenarios on Switchyard's engine.
//
//	ORACLE_IN=FILE.jsonl ORACLE_OUT=FILE.jsonl go test -run TestOracle .
//
// adds "expect" to each scenario. ORACLE_GATES=NAME=BOOL sets Kueue's feature gates.
package oracle
