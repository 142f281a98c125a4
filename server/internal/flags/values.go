// Package flags makes flags of the options of a control plane: it has values of their own, lists
// for the help, and flags of kube-apiserver that change nothing.
package flags

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AddNegated adds a boolean flag that is true when the option is false.
func AddNegated(f *pflag.FlagSet, option *bool, name, usage string) *pflag.Flag {
	flag := f.VarPF(negated{option}, name, "", usage)
	flag.NoOptDefVal = "true"
	return flag
}

// negated is the flag value for an option with the opposite meaning: the flag is true when the
// option is false.
type negated struct{ value *bool }

func (n negated) String() string {
	if n.value == nil {
		return "true"
	}
	return fmt.Sprint(!*n.value)
}

func (n negated) Set(s string) error {
	var on bool
	if _, err := fmt.Sscanf(s, "%t", &on); err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*n.value = !on
	return nil
}

func (n negated) Type() string { return "bool" }

func (n negated) IsBoolFlag() bool { return true }

// quantities is the flag value for amounts of resources, such as cpu=8,memory=32Gi.
type quantities struct{ list *corev1.ResourceList }

func (q quantities) String() string {
	if q.list == nil {
		return ""
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(*q.list)) {
		amount := (*q.list)[name]
		words = append(words, string(name)+"="+amount.String())
	}
	return strings.Join(words, ",")
}

func (q quantities) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		name, amount, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q does not look like cpu=8", word)
		}
		parsed, err := resource.ParseQuantity(amount)
		if err != nil {
			return fmt.Errorf("%s: %q is not a quantity, such as 500m or 32Gi", name, amount)
		}
		if *q.list == nil {
			*q.list = corev1.ResourceList{}
		}
		(*q.list)[corev1.ResourceName(name)] = parsed
	}
	return nil
}

func (q quantities) Type() string { return "quantities" }
