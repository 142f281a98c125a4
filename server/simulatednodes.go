package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/epoch"
	"github.com/kinproc/kinproc/server/internal/nodes"
)

func (o *Options) addNodeFlags(f *pflag.FlagSet) {
	f.IntVar(&o.SimulatedNodes, "simulate-nodes", o.SimulatedNodes,
		"number of nodes to simulate; their pods start, run and end, though no container runs")
	f.Var(quantities{&o.SimulatedNodeCapacity}, "simulated-node-capacity",
		"capacity of each simulated node, such as cpu=8,memory=32Gi,example.com/gpu=4")
}

// checkSimulatedNodes checks the options of simulated nodes.
func checkSimulatedNodes(o *Options) error {
	if o.SimulatedNodes < 0 {
		return fmt.Errorf("%d is negative", o.SimulatedNodes)
	}
	return nodes.Check(o.SimulatedNodes, o.SimulatedNodeCapacity)
}

// checkCapacity checks the capacity of simulated nodes, which the API would refuse again and again.
func checkCapacity(capacity corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		q := capacity[name]
		if msgs := validation.IsQualifiedName(string(name)); len(msgs) > 0 {
			return fmt.Errorf("%q is not the name of a resource: %s", name, strings.Join(msgs, "; "))
		}
		if q.Sign() < 0 {
			return fmt.Errorf("the capacity of %s, %s, is negative", name, &q)
		}
		counted := name == corev1.ResourcePods || strings.Contains(string(name), "/")
		if counted && q.MilliValue()%1000 != 0 {
			return fmt.Errorf("the capacity of %s, %s, is not a whole number", name, &q)
		}
	}
	return nil
}

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

// runNodes starts to simulate nodes until ctx ends, without waiting for them. The function that it
// returns waits until that has ended. Without any nodes, it deletes those of an earlier start,
// unless they belong to a snapshot that the control plane began with.
func (p *plane) runNodes(ctx context.Context) (wait func(), err error) {
	count := p.options.SimulatedNodes
	if count == 0 && (p.fresh || p.options.From != nil) {
		return func() {}, nil
	}
	config := rest.CopyConfig(p.self.config)
	config.UserAgent = "kubelet/" + KubernetesVersion + " (kinproc)"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	simulated, err := nodes.New(nodes.Config{
		Client: client, Informers: p.informers, Count: count,
		Capacity: p.options.SimulatedNodeCapacity,
		Version:  KubernetesVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	p.informers.StartWithContext(ctx)
	ctx = epoch.With(ctx, &p.requests.gate.epochs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := simulated.Run(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Simulated nodes failed")
		}
	}()
	return func() { <-ended }, nil
}
