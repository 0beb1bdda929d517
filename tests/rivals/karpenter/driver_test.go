package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pool = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec: {template: {spec: {requirements: []}}}
`

// small costs a cent in zone a (not to be had), three in b and two in c; large costs ten times as much.
func typesJSON() string {
	offering := func(zone string, price float64, available bool) string {
		return fmt.Sprintf(`{"Price": %v, "Available": %v, "Requirements": [
			{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [%q]},
			{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}`, price, available, zone)
	}
	entry := func(name, cpu string, factor float64) string {
		return fmt.Sprintf(`{"name": %q, "architecture": "amd64", "operatingSystems": ["linux"],
			"resources": {"cpu": %q, "memory": "16Gi"}, "offerings": [%s, %s, %s]}`, name, cpu,
			offering("a", 0.01*factor, false), offering("b", 0.03*factor, true), offering("c", 0.02*factor, true))
	}
	return "[" + entry("small", "4", 1) + "," + entry("large", "32", 10) + "]"
}

func pod(name, cpu, more string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers: [{name: c, resources: {requests: {cpu: %q}}}]
%s`, name, cpu, more)
}

func save(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func plan(t *testing.T, pods string, args ...string) row {
	t.Helper()
	folder := save(t, map[string]string{podsFile: pods, poolsFile: pool, typesFile: typesJSON()})
	var output bytes.Buffer
	if err := run(append(args, folder), &output, os.Stderr); err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(output.Bytes(), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v: %s", err, output.String())
	}
	return rows[0]
}

func expect(t *testing.T, got row, nodes, unplaced int, cost float64) {
	t.Helper()
	if got.Nodes != nodes || got.Unplaced != unplaced || math.Abs(got.CostPerHour-cost) > 1e-9 {
		t.Errorf("got %d nodes, %d unplaced, $%v; want %d, %d, $%v", got.Nodes, got.Unplaced, got.CostPerHour, nodes, unplaced, cost)
	}
}

func TestTheCheapestAvailableOfferingIsThePrice(t *testing.T) {
	expect(t, plan(t, pod("p", "1", "")), 1, 0, 0.02)
	expect(t, plan(t, pod("p", "1", "  nodeSelector: {topology.kubernetes.io/zone: b}\n")), 1, 0, 0.03)
}

func TestPodsThatFitNowhereAreCounted(t *testing.T) {
	expect(t, plan(t, pod("huge", "64", "")+pod("p", "1", "")), 1, 1, 0.02)
	// Zone a is sold out.
	expect(t, plan(t, pod("p", "1", "  nodeSelector: {topology.kubernetes.io/zone: a}\n")), 0, 1, 0)
}

func TestOverheadIsKeptFree(t *testing.T) {
	// 4 cores less 100m: a pod of 4 needs the large type.
	expect(t, plan(t, pod("p", "4", "")), 1, 0, 0.2)
	expect(t, plan(t, pod("p", "3900m", "")), 1, 0, 0.02)
}

func TestThePolicyTellsHowItRan(t *testing.T) {
	got := plan(t, pod("p", "1", ""), "--name", "mine", "--workers", "5", "--ignore-preferences")
	if got.Name != "mine" || !strings.HasPrefix(got.Policy, "karpenter@v1.") ||
		!strings.HasSuffix(got.Policy, " workers=5 preferences=ignored") {
		t.Errorf("%+v", got)
	}
	if got.Bound != nil || got.Gap != nil || got.PeakMemoryBytes < 1<<20 {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	one := pod("p", "1", "")
	for name, files := range map[string]map[string]string{
		"does not know what to do":       {podsFile: one, poolsFile: pool, typesFile: typesJSON(), "nodes.yaml": ""},
		"expected v1 Pod, found v1 Node": {podsFile: "apiVersion: v1\nkind: Node\n", poolsFile: pool, typesFile: typesJSON()},
		"unknown field":                  {podsFile: pod("p", "1", "  nodeSelektor: {a: b}\n"), poolsFile: pool, typesFile: typesJSON()},
		"runs on node":                   {podsFile: pod("p", "1", "  nodeName: worker\n"), poolsFile: pool, typesFile: typesJSON()},
		"no such file":                   {podsFile: one, poolsFile: pool},
	} {
		var output bytes.Buffer
		err := run([]string{save(t, files)}, &output, os.Stderr)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("expected %q, got %v", name, err)
		}
	}
}
