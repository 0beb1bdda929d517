//go:build tools

// Package tools names what is built from this module, so that `go mod tidy`
// keeps what it needs: Karpenter with its KWOK provider, and the packages that
// the tests of its regression suite import.
package tools

import (
	_ "sigs.k8s.io/karpenter/kwok"
	_ "sigs.k8s.io/karpenter/pkg/test/expectations"
	_ "sigs.k8s.io/karpenter/test/pkg/environment/common"
)
