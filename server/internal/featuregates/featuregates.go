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

	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/version"

	"github.com/kinproc/kinproc/server/internal/nearest"
)

// gate is a feature gate of kube-apiserver.
type gate struct {
	name  string
	stage stage
	value value
	here  treatment
	// why is the reason why the gate is not switched.
	why string
}

type stage string

const (
	alpha      stage = "ALPHA"
	beta       stage = "BETA"
	ga         stage = "GA"
	deprecated stage = "DEPRECATED"
)

// value is the default of a gate. A locked one cannot be changed in kube-apiserver either.
type value int

const (
	off value = iota
	on
	lockedOff
	lockedOn
)

func (v value) on() bool     { return v == on || v == lockedOn }
func (v value) locked() bool { return v == lockedOff || v == lockedOn }

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

// Registered is the gates of the Kubernetes libraries: the features that they know.
type Registered map[featuregate.Feature]featuregate.FeatureSpec

// Check returns an error if a gate has a value that cannot be had.
func (r Registered) Check(gates map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if err := r.check(name, gates[name]); err != nil {
			return err
		}
	}
	return nil
}

func (r Registered) check(name string, want bool) error {
	cannot := func(why string) error {
		return fmt.Errorf("%s=%t: it cannot be switched here, because %s", name, want, why)
	}
	known := find(name)
	if known == nil {
		// a gate of the program that kinproc is part of
		spec, ok := r[featuregate.Feature(name)]
		switch {
		case !ok:
			return unknown(name)
		case spec.LockToDefault && spec.Default != want:
			return cannot(fmt.Sprintf("it is always %t", spec.Default))
		}
		return nil
	}
	switch {
	case known.value.locked() && known.value.on() != want:
		return cannot(fmt.Sprintf("it is always %t in Kubernetes %s", known.value.on(),
			version.DefaultKubeBinaryVersion))
	case known.here == always && !want, known.here == never && want:
		return cannot(known.why)
	case known.here == client && known.value.on() != want:
		return cannot("the clients of this process follow the environment variable KUBE_FEATURE_" + name)
	}
	return nil
}

// Switches returns the values to set in the libraries. The groups AllAlpha and AllBeta do not
// include gates that cannot be switched here.
func (r Registered) Switches(gates map[string]bool) map[string]bool {
	set := map[string]bool{}
	for name, want := range gates {
		if known := find(name); known == nil || known.here == switched {
			set[name] = want
		}
	}
	if len(set) == 0 {
		return nil
	}
	for _, g := range table {
		if _, ok := r[featuregate.Feature(g.name)]; ok && (g.here == always || g.here == never) {
			set[g.name] = g.here == always
		}
	}
	return set
}

// Ineffective returns, in sentences, which of the gates differ from the default and change nothing.
func Ineffective(gates map[string]bool) []string {
	var sentences []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if g := find(name); g != nil && g.here == unread && g.value.on() != gates[name] {
			sentences = append(sentences, fmt.Sprintf("%s=%t has no effect: %s", name, gates[name], g.why))
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
func unknown(name string) error {
	names := make([]string, len(table))
	for i, g := range table {
		names[i] = g.name
	}
	if question := nearest.Ask(name, names); question != "" {
		return fmt.Errorf("there is no feature %q; %s", name, question)
	}
	return fmt.Errorf("there is no feature %q", name)
}
