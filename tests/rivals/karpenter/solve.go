package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// solution is what one run came to.
type solution struct {
	pods     int
	nodes    int
	unplaced int
	cost     float64
	elapsed  time.Duration
}

// solve times the scheduler alone, as Karpenter's benchmark does: files,
// instance types and the groups of the topology are ready before the clock
// starts. The minute after which the controller gives up does not apply.
func (w *workload) solve(ctx context.Context, workers int, ignorePreferences bool) (solution, error) {
	ctx = options.ToContext(injection.WithControllerName(ctx, "provisioner"), &options.Options{
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
	})
	settings := []scheduling.Options{
		scheduling.NumConcurrentReconciles(workers),
		scheduling.MinValuesPolicy(options.MinValuesPolicyStrict),
	}
	if ignorePreferences {
		settings = append(settings, scheduling.IgnorePreferences)
	}
	scheduler, err := w.scheduler(ctx, settings)
	if err != nil {
		return solution{}, err
	}
	// What reading left behind is not to be collected on the scheduler's time.
	runtime.GC()

	start := time.Now()
	results, err := scheduler.Solve(ctx, w.pods)
	elapsed := time.Since(start)
	if err != nil {
		return solution{}, fmt.Errorf("plan: %w", err)
	}
	return w.summary(results, elapsed)
}

func (w *workload) scheduler(ctx context.Context, settings []scheduling.Options) (*scheduling.Scheduler, error) {
	server := emptyServer{namespaces: namespaces(w.pods)}
	realClock := clock.RealClock{}
	cluster := state.NewCluster(realClock, server, nil)
	instanceTypes := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range w.pools {
		instanceTypes[pool.Name] = w.types
	}
	topology, err := scheduling.NewTopology(ctx, server, cluster, nil, w.pools, instanceTypes, w.pods, settings...)
	if err != nil {
		return nil, fmt.Errorf("prepare the topology: %w", err)
	}
	return scheduling.NewScheduler(ctx, server, w.pools, cluster, nil, topology, instanceTypes, nil,
		silence{}, realClock, nil, nil, settings...), nil
}

// summary counts and prices what came out, and makes sure that no pod is lost.
func (w *workload) summary(results scheduling.Results, elapsed time.Duration) (solution, error) {
	result := solution{pods: len(w.pods), nodes: len(results.NewNodeClaims), unplaced: len(results.PodErrors), elapsed: elapsed}
	placed := 0
	for _, claim := range results.NewNodeClaims {
		price, err := claimPrice(claim)
		if err != nil {
			return solution{}, err
		}
		result.cost += price
		placed += len(claim.Pods)
	}
	if placed+result.unplaced != result.pods {
		return solution{}, fmt.Errorf("%d pods are placed and %d are not, of %d", placed, result.unplaced, result.pods)
	}
	return result, nil
}

// claimPrice is the least that a claim can be launched for: the cheapest
// available offering of its instance types that its requirements allow.
func claimPrice(claim *scheduling.NodeClaim) (float64, error) {
	price := math.Inf(1)
	for _, instanceType := range claim.InstanceTypeOptions {
		for _, offering := range instanceType.Offerings.Available().Compatible(claim.Requirements) {
			price = math.Min(price, offering.Price)
		}
	}
	if math.IsInf(price, 1) {
		return 0, errors.New("a planned NodeClaim has no offering")
	}
	return price, nil
}

func namespaces(pods []*corev1.Pod) []string {
	seen := map[string]bool{}
	var names []string
	for _, pod := range pods {
		if !seen[pod.Namespace] {
			seen[pod.Namespace] = true
			names = append(names, pod.Namespace)
		}
	}
	return names
}

// silence drops the events that the scheduler publishes.
type silence struct{}

func (silence) Publish(...events.Event) {}
