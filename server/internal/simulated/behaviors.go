package simulated

import (
	"cmp"
	"context"
	_ "embed" // podbehaviors.yaml
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

//go:embed podbehaviors.yaml
var behaviorDefinition []byte

var (
	behaviorResource = schema.GroupVersionResource{
		Group: "kinproc.dev", Version: "v1alpha1", Resource: "podbehaviors",
	}
	definitionResource = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
)

// behaviorSpec is the spec of a PodBehavior.
type behaviorSpec struct {
	Selector metav1.LabelSelector `json:"selector"`
	Percent  int64                `json:"percent"`
	Seed     int64                `json:"seed"`
	Set      map[string]string    `json:"set"`
}

// rule is a PodBehavior.
type rule struct {
	name     string
	selector labels.Selector
	behaviorSpec
}

// Behaviors are the PodBehaviors, which stand for annotations of many pods. A nil pointer has none.
type Behaviors struct {
	// Client is an administrator's.
	Client dynamic.Interface
	// ReadOnly is set if the custom resource must not be installed.
	ReadOnly bool

	mu      sync.Mutex
	rules   map[string][]rule // by namespace, in the order of their names; replaced, never changed
	changed func(namespace string)
}

// OnChange calls changed from now on with the namespace of a PodBehavior that has changed.
func (b *Behaviors) OnChange(changed func(namespace string)) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = changed
}

// Of returns a pod with the annotations that apply to it. It may be the same pod, and must not be
// changed.
func (b *Behaviors) Of(p *corev1.Pod) *corev1.Pod {
	if b == nil {
		return p
	}
	b.mu.Lock()
	rules := b.rules[p.Namespace]
	b.mu.Unlock()
	var set map[string]string
	for i := range rules {
		r := &rules[i]
		if !r.selector.Matches(labels.Set(p.Labels)) ||
			fraction(p, r.Seed, "")*100 >= float64(r.Percent) {
			continue
		}
		for key, value := range r.Set {
			name := annotationPrefix + key
			if _, own := p.Annotations[name]; own {
				continue
			}
			if _, earlier := set[name]; earlier {
				continue
			}
			if set == nil {
				set = map[string]string{}
			}
			set[name] = within(value, fraction(p, r.Seed, key))
		}
	}
	if set == nil {
		return p
	}
	with := *p
	maps.Copy(set, p.Annotations)
	with.Annotations = set
	return &with
}

const annotationPrefix = "kinproc.dev/"

// fraction returns a number from 0 to 1, without 1, that is the same for a pod of the same name.
func fraction(p *corev1.Pod, seed int64, key string) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%s/%s/%s", seed, p.Namespace, p.Name, key)
	// The last bits of the hash vary most; multiplied, they reach the first ones.
	return float64(h.Sum64()*0x9E3779B97F4A7C15>>11) / (1 << 53)
}

// within returns a duration from a range such as 1s..5s, or the value if it is no such range.
func within(value string, at float64) string {
	from, to, ok := strings.Cut(value, rangeSign)
	low, err := time.ParseDuration(strings.TrimSpace(from))
	high, err2 := time.ParseDuration(strings.TrimSpace(to))
	if !ok || err != nil || err2 != nil || high < low {
		return value
	}
	return (low + time.Duration(at*float64(high-low))).String()
}

// behaviorRetry is the time between two attempts to install the custom resource.
const behaviorRetry = time.Second

// Run installs the custom resource and follows the PodBehaviors until ctx ends. It calls served
// when clients can create PodBehaviors.
func (b *Behaviors) Run(ctx context.Context, served func()) {
	for !b.ReadOnly {
		err := b.install(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		utilruntime.HandleErrorWithContext(ctx, err, "Installing PodBehaviors failed, trying again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(behaviorRetry):
		}
	}
	if !b.served(ctx) {
		return
	}
	served()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(b.Client, 0)
	informer := factory.ForResource(behaviorResource).Informer()
	handle := func(obj any) {
		if u, ok := loop.Deleted(obj).(*unstructured.Unstructured); ok {
			b.read(informer, u.GetNamespace())
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: handle,
	}); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Following PodBehaviors failed")
		return
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// install creates the custom resource, or updates that of an earlier version.
func (b *Behaviors) install(ctx context.Context) error {
	wanted := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(behaviorDefinition, &wanted.Object); err != nil {
		return err
	}
	client := b.Client.Resource(definitionResource)
	found, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil || found.GetLabels()[Label] != "true" ||
		equality.Semantic.DeepDerivative(wanted.Object["spec"], found.Object["spec"]) {
		return err
	}
	found.Object["spec"] = wanted.Object["spec"]
	_, err = client.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

// served waits until the custom resource can be listed. It reports whether that is so before ctx
// ends.
func (b *Behaviors) served(ctx context.Context) bool {
	for delay := time.Millisecond; ; delay = min(2*delay, behaviorRetry) {
		if _, err := b.Client.Resource(behaviorResource).List(ctx,
			metav1.ListOptions{Limit: 1}); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(delay):
		}
	}
}

// read reads the PodBehaviors of a namespace, which have changed. Those that others have stored
// without the schema are left out.
func (b *Behaviors) read(informer cache.SharedIndexInformer, namespace string) {
	var rules []rule
	for _, u := range loop.InNamespace[unstructured.Unstructured](informer, namespace) {
		spec, _, err := unstructured.NestedMap(u.Object, "spec")
		r := rule{name: u.GetName(), behaviorSpec: behaviorSpec{Percent: 100}}
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &r.behaviorSpec)
		}
		if err == nil {
			r.selector, err = metav1.LabelSelectorAsSelector(&r.Selector)
		}
		if err == nil {
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, func(a, b rule) int { return cmp.Compare(a.name, b.name) })
	b.mu.Lock()
	if b.rules == nil {
		b.rules = map[string][]rule{}
	}
	b.rules[namespace] = rules
	if len(rules) == 0 {
		delete(b.rules, namespace)
	}
	changed := b.changed
	b.mu.Unlock()
	if changed != nil {
		changed(namespace)
	}
}
