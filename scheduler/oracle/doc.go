// Package oracle asks Kueue what it decides.
//
// It drives Kueue's cache, queue manager and scheduler, taken as a Go module, through scenarios: objects, and steps that
// edit them. No API server and no controllers run; what those would tell the cache and the queues about each edit is done
// here, and `cargo xtask fuzz-decisions` plays the same for our engine.
//
//	ORACLE_IN=FILE.jsonl ORACLE_OUT=FILE.jsonl go test -run TestOracle .
//
// writes the scenarios with an "expect" each. ORACLE_GATES=NAME=BOOL sets Kueue's feature gates.
package oracle
