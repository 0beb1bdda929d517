// Command karpenter-rival lets Karpenter's own scheduler plan a workload that
// `millpond bench NAME --save DIR` wrote, and prints the row that `millpond
// bench -o json` prints for its own engine.
//
//	karpenter-rival [--name NAME] [--workers N] [--ignore-preferences] DIR
//
// Karpenter's packages are used as they are. What this program adds is the
// reading of files, an API server that is empty, and the sum of prices.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard())
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if err != flag.ErrHelp {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
		}
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("karpenter-rival", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("name", "", "name of the row (default: the name of the folder)")
	workers := flags.Int("workers", 1, "candidates that are checked at the same time; Karpenter's benchmark has 5")
	ignorePreferences := flags.Bool("ignore-preferences", false, "plan with PreferencePolicy=Ignore instead of Respect")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *workers < 1 {
		return fmt.Errorf("usage: karpenter-rival [--name NAME] [--workers N] [--ignore-preferences] DIR")
	}
	folder := flags.Arg(0)
	workload, err := readWorkload(folder)
	if err != nil {
		return err
	}
	solution, err := workload.solve(context.Background(), *workers, *ignorePreferences)
	if err != nil {
		return err
	}
	if *name == "" {
		*name = filepath.Base(filepath.Clean(folder))
	}
	rows := []row{solution.row(*name, policyName(*workers, *ignorePreferences))}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(rows)
}

// policyName tells this engine from the imitation that is built into Millpond
// under the name `karpenter`: it carries the version that was linked.
func policyName(workers int, ignorePreferences bool) string {
	name := "karpenter@" + karpenterVersion()
	if workers != 1 {
		name += fmt.Sprintf(" workers=%d", workers)
	}
	if ignorePreferences {
		name += " preferences=ignored"
	}
	return name
}

func karpenterVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "sigs.k8s.io/karpenter" {
				return module.Version
			}
		}
	}
	return "unknown"
}
