package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
	"sigs.k8s.io/yaml"
)

// The files of a saved workload. Anything else in the folder is refused: an
// engine that leaves part of the work out is no rival.
const (
	podsFile  = "pods.yaml"
	poolsFile = "pools.yaml"
	typesFile = "types.json"
)

// workload is what Karpenter's scheduler needs.
type workload struct {
	pods  []*corev1.Pod
	pools []*karpenter.NodePool
	types []*cloudprovider.InstanceType
}

func readWorkload(folder string) (*workload, error) {
	if err := refuseOthers(folder); err != nil {
		return nil, err
	}
	pods, err := readObjects[corev1.Pod](filepath.Join(folder, podsFile), "v1", "Pod")
	if err != nil {
		return nil, err
	}
	pools, err := readObjects[karpenter.NodePool](filepath.Join(folder, poolsFile), "karpenter.sh/v1", "NodePool")
	if err != nil {
		return nil, err
	}
	instanceTypes, err := readTypes(filepath.Join(folder, typesFile))
	if err != nil {
		return nil, err
	}
	for index, pod := range pods {
		if err := completePod(pod, index); err != nil {
			return nil, err
		}
	}
	for _, pool := range pools {
		if err := completePool(pool); err != nil {
			return nil, err
		}
	}
	nodepool.OrderByWeight(pools)
	return &workload{pods: pods, pools: pools, types: instanceTypes}, nil
}

func refuseOthers(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch entry.Name() {
		case podsFile, poolsFile, typesFile:
		default:
			return fmt.Errorf("%s: this driver reads %s, %s and %s; it does not know what to do with %q",
				folder, podsFile, poolsFile, typesFile, entry.Name())
		}
	}
	return nil
}

// completePod sets what an API server would have set. Pods are equal in age,
// so that the order of the file decides wherever Karpenter looks at the UID.
func completePod(pod *corev1.Pod, index int) error {
	if pod.Spec.NodeName != "" {
		return fmt.Errorf("pod %s runs on node %s: only pending pods can be planned here", pod.Name, pod.Spec.NodeName)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.UID == "" {
		pod.UID = types.UID(fmt.Sprintf("%012d", index))
	}
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
	}
	return nil
}

func completePool(pool *karpenter.NodePool) error {
	if pool.Name == "" {
		return errors.New("a NodePool has no name")
	}
	if nodepool.IsStatic(pool) {
		return fmt.Errorf("NodePool %s has replicas: Karpenter plans no pods for such a pool", pool.Name)
	}
	if pool.Spec.Template.Spec.NodeClassRef == nil {
		pool.Spec.Template.Spec.NodeClassRef =
			&karpenter.NodeClassReference{Group: "millpond.dev", Kind: "NodeClass", Name: "default"}
	}
	return nil
}

// readObjects reads the documents of a YAML file, all of one kind.
func readObjects[T any](path, apiVersion, kind string) ([]*T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []*T
	documents := kubeyaml.NewYAMLReader(bufio.NewReader(file))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", path, number, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, err := decode[T](document, apiVersion, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", path, number, err)
		}
		objects = append(objects, object)
	}
}

func decode[T any](document []byte, apiVersion, kind string) (*T, error) {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	var meta metav1.TypeMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, err
	}
	if meta.APIVersion != apiVersion || meta.Kind != kind {
		return nil, fmt.Errorf("expected %s %s, found %s %s", apiVersion, kind, meta.APIVersion, meta.Kind)
	}
	object := new(T)
	if err := strictUnmarshal(text, object); err != nil {
		return nil, err
	}
	return object, nil
}

// strictUnmarshal refuses fields that are not known: what is not read is not planned.
func strictUnmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
