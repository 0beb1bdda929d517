package main

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
)

// row has the keys of a row of `millpond bench -o json`.
type row struct {
	Name            string   `json:"name"`
	Policy          string   `json:"policy"`
	Pods            int      `json:"pods"`
	Nodes           int      `json:"nodes"`
	Unplaced        int      `json:"unplaced"`
	CostPerHour     float64  `json:"costPerHour"`
	Bound           *float64 `json:"bound"`
	Gap             *float64 `json:"gap"`
	Seconds         float64  `json:"seconds"`
	PodsPerSecond   float64  `json:"podsPerSecond"`
	PeakMemoryBytes uint64   `json:"peakMemoryBytes"`
}

// row leaves bound and gap empty: Karpenter does not say how good a plan is.
func (s solution) row(name, policy string) row {
	seconds := s.elapsed.Seconds()
	return row{
		Name:            name,
		Policy:          policy,
		Pods:            s.pods,
		Nodes:           s.nodes,
		Unplaced:        s.unplaced,
		CostPerHour:     s.cost,
		Seconds:         seconds,
		PodsPerSecond:   float64(s.pods) / math.Max(seconds, 1e-9),
		PeakMemoryBytes: peakMemory(),
	}
}

// peakMemory is the largest resident size of the process so far.
func peakMemory() uint64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("getrusage of the process itself: %v", err))
	}
	if runtime.GOOS == "darwin" {
		return uint64(usage.Maxrss)
	}
	return uint64(usage.Maxrss) * 1024
}
