package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"
)

func main() {
	if job, ok := os.LookupEnv(jobVariable); ok {
		os.Exit(work(job, os.Stdin))
	}
	seed := flag.Uint64("seed", 1, "")
	mut := flag.String("mutant", "", "")
	pat := flag.String("faults", ".*", "")
	d := flag.Duration("time", 10*time.Second, "")
	flag.Parse()
	fs, err := chosen(*pat)
	if err != nil {
		log.Fatal(err)
	}
	if *pat == "none" {
		fs = nil
	}
	r, err := plan{Seed: *seed, Faults: fs, Time: *d, Mutant: *mut, Early: *mut != "", Progress: log.Printf}.run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for i, v := range r.Violations {
		if i < 15 {
			log.Print(v)
		}
	}
	log.Printf("%d violations; %+v; %d events", len(r.Violations), r.Figures, len(r.Events))
}
