package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// emptyServer is a cluster that holds nothing but the namespaces of the pods.
// It answers at once, so that no time of an API server is laid at the
// scheduler's door. Calls that a plan has no reason to make hit the nil
// client and end the program.
type emptyServer struct {
	client.Client
	namespaces []string
}

func (emptyServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.Name)
}

func (s emptyServer) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	namespaceList, ok := list.(*corev1.NamespaceList)
	if !ok {
		return nil
	}
	var chosen client.ListOptions
	chosen.ApplyOptions(options)
	for _, name := range s.namespaces {
		own := labels.Set{corev1.LabelMetadataName: name}
		if chosen.LabelSelector == nil || chosen.LabelSelector.Matches(own) {
			namespaceList.Items = append(namespaceList.Items,
				corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}})
		}
	}
	return nil
}
