package main

import (
	"fmt"
	"os"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// savedType is an entry of types.json, the format of Karpenter's KWOK
// provider. `requirements` and `overhead` are ours: further labels of a type,
// and what kubelet and system keep for themselves.
type savedType struct {
	Name             string                           `json:"name"`
	Offerings        []savedOffering                  `json:"offerings"`
	Architecture     string                           `json:"architecture"`
	OperatingSystems []string                         `json:"operatingSystems"`
	Resources        corev1.ResourceList              `json:"resources"`
	Requirements     []corev1.NodeSelectorRequirement `json:"requirements"`
	Overhead         corev1.ResourceList              `json:"overhead"`
}

type savedOffering struct {
	Price               float64
	Available           bool
	ReservationCapacity int
	Requirements        []corev1.NodeSelectorRequirement
}

// What the KWOK provider assumes where the file says nothing.
var (
	kwokPods     = resource.MustParse("110")
	kwokOverhead = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("10Mi"),
	}
)

func readTypes(path string) ([]*cloudprovider.InstanceType, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var saved []savedType
	if err := strictUnmarshal(text, &saved); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return lo.Map(saved, func(entry savedType, _ int) *cloudprovider.InstanceType { return entry.instanceType() }), nil
}

func (s savedType) instanceType() *cloudprovider.InstanceType {
	own := scheduling.NewRequirements(
		scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, s.Name),
		scheduling.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, s.Architecture),
		scheduling.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, s.OperatingSystems...),
	)
	own.Add(requirements(s.Requirements).Values()...)
	for _, key := range []string{corev1.LabelTopologyZone, karpenter.CapacityTypeLabelKey} {
		own.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, s.offered(key)...))
	}
	capacity := lo.Assign(corev1.ResourceList{corev1.ResourcePods: kwokPods}, s.Resources)
	overhead := s.Overhead
	if overhead == nil {
		overhead = kwokOverhead
	}
	return &cloudprovider.InstanceType{
		Name:         s.Name,
		Requirements: own,
		Offerings: lo.Map(s.Offerings, func(offering savedOffering, _ int) *cloudprovider.Offering {
			return &cloudprovider.Offering{
				Requirements:        requirements(offering.Requirements),
				Price:               offering.Price,
				Available:           offering.Available,
				ReservationCapacity: offering.ReservationCapacity,
			}
		}),
		Capacity: capacity,
		Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: overhead},
	}
}

// offered collects the values that the offerings give a label.
func (s savedType) offered(key string) []string {
	var values []string
	for _, offering := range s.Offerings {
		for _, requirement := range offering.Requirements {
			if requirement.Key == key {
				values = append(values, requirement.Values...)
			}
		}
	}
	return lo.Uniq(values)
}

// requirements also makes the keys known, as a provider does with its labels:
// Karpenter lets pods ask only for labels that a pool sets or a provider knows.
func requirements(saved []corev1.NodeSelectorRequirement) scheduling.Requirements {
	result := scheduling.NewRequirements()
	for _, requirement := range saved {
		karpenter.WellKnownLabels.Insert(requirement.Key)
		result.Add(scheduling.NewRequirement(requirement.Key, requirement.Operator, requirement.Values...))
	}
	return result
}
