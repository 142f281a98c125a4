// Package featuregates knows the feature gates of kube-apiserver, and which of them can be switched
// here.
//
// Most gates concern parts of Kubernetes that are not among the libraries. The value of such a gate
// is accepted if it is what kinproc does in any case, or if kube-apiserver does not read the gate
// either.
package featuregates

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/server/internal/nearest"
)

// gate is a feature gate of kube-apiserver.
type gate struct {
	name string
	here treatment
	// why is the reason why the gate is not switched.
	why string
}

// treatment is what kinproc does about a gate.
type treatment int

const (
	// switched gates have an effect: the Kubernetes libraries read them.
	switched treatment = iota
	// always and never say what kinproc does, whatever the gate says.
	always
	never
	// unread gates change nothing, as in a kube-apiserver without the other programs of a cluster.
	unread
	// client gates belong to client-go, which all clients of the process share.
	client
)

// Gates are the feature gates of a version of Kubernetes.
type Gates struct {
	version *version.Version
	specs   map[featuregate.Feature]featuregate.FeatureSpec
}

// Of returns the feature gates of a version of Kubernetes. The libraries must know them.
func Of(v *version.Version) (Gates, error) {
	all := utilfeature.DefaultMutableFeatureGate
	if !v.EqualTo(all.EmulationVersion()) {
		all = all.DeepCopyAndReset()
		if err := all.SetEmulationVersion(v); err != nil {
			return Gates{}, fmt.Errorf("feature gates of Kubernetes %s: %w", v, err)
		}
	}
	return Gates{v, all.GetAll()}, nil
}

// Check returns an error if a gate has a value that cannot be had.
func (g Gates) Check(values map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := g.check(name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

func (g Gates) check(name string, want bool) error {
	cannot := func(why string) error {
		return fmt.Errorf("%s=%t: it cannot be switched here, because %s", name, want, why)
	}
	spec, ok := g.specs[featuregate.Feature(name)]
	known := find(name)
	switch {
	case !ok && known != nil:
		return fmt.Errorf("there is no feature %q in Kubernetes %s", name, g.version)
	case !ok:
		return g.unknown(name)
	case spec.LockToDefault && spec.Default != want:
		return cannot(fmt.Sprintf("it is always %t in Kubernetes %s", spec.Default, g.version))
	case known == nil: // a gate of the program that kinproc is part of
		return nil
	case known.here == always && !want, known.here == never && want:
		return cannot(known.why)
	case known.here == client && spec.Default != want:
		return cannot("the clients of this process follow the environment variable KUBE_FEATURE_" + name)
	}
	return nil
}

// Switches returns the values to set in the libraries. The groups AllAlpha and AllBeta do not
// include gates that cannot be switched here.
func (g Gates) Switches(values map[string]bool) map[string]bool {
	set := maps.Clone(values)
	for _, row := range table {
		spec, ok := g.specs[featuregate.Feature(row.name)]
		if ok && (row.here == always || row.here == never || row.here == client) {
			set[row.name] = spec.Default
		}
	}
	return set
}

// Ineffective returns, in sentences, which of the gates differ from the default and change nothing.
func (g Gates) Ineffective(values map[string]bool) []string {
	var sentences []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		row, on := find(name), g.specs[featuregate.Feature(name)].Default
		if row != nil && row.here == unread && on != values[name] {
			sentences = append(sentences,
				fmt.Sprintf("%s=%t has no effect: %s", name, values[name], row.why))
		}
	}
	return sentences
}

func find(name string) *gate {
	i, ok := slices.BinarySearchFunc(table, name,
		func(g gate, name string) int { return strings.Compare(g.name, name) })
	if !ok {
		return nil
	}
	return &table[i]
}

// unknown returns the error about a gate that kube-apiserver does not have either.
func (g Gates) unknown(name string) error {
	var names []string
	for _, feature := range slices.Sorted(maps.Keys(g.specs)) {
		names = append(names, string(feature))
	}
	if question := nearest.Ask(name, names); question != "" {
		return fmt.Errorf("there is no feature %q; %s", name, question)
	}
	return fmt.Errorf("there is no feature %q", name)
}
