// Package standin makes this program stand in for the three programs that envtest, of
// controller-runtime, starts: kube-apiserver, etcd and kubectl. The program finds out from its own
// name which of them it is.
//
// The etcd holds nothing. A kube-apiserver that finds it at --etcd-servers has an etcd inside.
package standin

import (
	"path/filepath"
	"slices"
	"strings"
)

// The names of the programs.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
	Kubectl   = "kubectl"
)

// Name returns the program that an executable stands in for, or "" if it has another name.
func Name(executable string) string {
	name := strings.TrimSuffix(filepath.Base(executable), suffix)
	if slices.Contains([]string{APIServer, Etcd, Kubectl}, name) {
		return name
	}
	return ""
}
