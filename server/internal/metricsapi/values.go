package metricsapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	custommetricsv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetricsv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"github.com/kinproc/kinproc/server/internal/simulated"
)

// described is an object that a metric may be about.
type described struct {
	corev1.ObjectReference
	annotations map[string]string
	load        simulated.Load
}

// custom answers requests for custom.metrics.k8s.io. The path is one of
//
//	namespaces/NAMESPACE/RESOURCE/NAME/METRIC
//	namespaces/NAMESPACE/metrics/METRIC
//	RESOURCE/NAME/METRIC
//
// where the name may be * for all objects that the label selector matches.
func (a *API) custom(r *http.Request, path []string) (any, error) {
	var namespace, of, name, metric string
	switch {
	case len(path) == 5 && path[0] == "namespaces":
		namespace, of, name, metric = path[1], path[2], path[3], path[4]
	case len(path) == 4 && path[0] == "namespaces" && path[2] == "metrics":
		of, name, metric = "namespaces", path[1], path[3]
	case len(path) == 3:
		of, name, metric = path[0], path[1], path[2]
	default:
		return nil, unknown(r)
	}
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	series, err := labels.Parse(query.Get("metricLabelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metricLabelSelector: %v", err))
	}
	objects, err := a.objects(r.Context(), namespace, of, name, selector)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	list := custommetricsv1beta2.MetricValueList{
		TypeMeta: metav1.TypeMeta{Kind: "MetricValueList", APIVersion: customMetrics.String()},
		Items:    []custommetricsv1beta2.MetricValue{},
	}
	for _, o := range objects {
		if milli, ok := o.value(metric, series, now); ok {
			list.Items = append(list.Items, custommetricsv1beta2.MetricValue{
				DescribedObject: o.ObjectReference, Timestamp: metav1.NewTime(now),
				Metric: custommetricsv1beta2.MetricIdentifier{Name: metric},
				Value:  *resource.NewMilliQuantity(milli, resource.DecimalSI),
			})
		}
	}
	if len(list.Items) == 0 && name != custommetricsv1beta2.AllObjects {
		return nil, apierrors.NewNotFound(customMetrics.WithResource(of).GroupResource(),
			fmt.Sprintf("%s: it has no annotation %s%s", name, simulated.CustomMetric, metric))
	}
	return list, nil
}

// value returns the sum of the values of a metric whose labels match. What the owner of a pod says
// is shared among its pods, unless the pod says otherwise.
func (d *described) value(
	metric string, selector labels.Selector, now time.Time,
) (milli int64, ok bool) {
	share := int64(1)
	text, ok := d.annotations[simulated.CustomMetric+metric]
	if !ok {
		text, ok = d.load.Annotations[simulated.CustomMetric+metric]
		share = int64(max(1, d.load.Pods))
	}
	series, err := simulated.ParseSeries(text)
	if !ok || err != nil {
		return 0, false
	}
	ok = false
	for _, s := range series {
		if selector.Matches(s.Labels) {
			milli, ok = milli+s.Amount.At(now, 0), true
		}
	}
	return milli / share, ok
}

// objects returns the objects that a request for a custom metric is about.
func (a *API) objects(
	ctx context.Context, namespace, of, name string, selector labels.Selector,
) ([]described, error) {
	gr := schema.ParseGroupResource(of)
	if gr == corev1.Resource("pods") {
		return a.describedPods(namespace, name, selector)
	}
	gvr, kind, err := a.resourceOf(gr)
	if err != nil {
		return nil, err
	}
	client := a.config.Metadata.Resource(gvr).Namespace(namespace)
	var items []metav1.PartialObjectMetadata
	if name == custommetricsv1beta2.AllObjects {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return nil, err
		}
		items = list.Items
	} else {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		items = append(items, *object)
	}
	var all []described
	for i := range items {
		all = append(all, described{
			ObjectReference: corev1.ObjectReference{
				Kind: kind, APIVersion: gvr.GroupVersion().String(),
				Name: items[i].Name, Namespace: items[i].Namespace,
			},
			annotations: items[i].Annotations,
		})
	}
	return all, nil
}

func (a *API) describedPods(
	namespace, name string, selector labels.Selector,
) ([]described, error) {
	pods, err := a.pods.Pods(namespace).List(selector)
	if err != nil {
		return nil, err
	}
	var all []described
	loads := a.newLoads()
	for _, p := range pods {
		if name != custommetricsv1beta2.AllObjects && name != p.Name {
			continue
		}
		if name == custommetricsv1beta2.AllObjects && p.Status.Phase != corev1.PodRunning {
			continue
		}
		all = append(all, described{
			ObjectReference: corev1.ObjectReference{
				Kind: "Pod", APIVersion: "v1", Name: p.Name, Namespace: p.Namespace,
			},
			annotations: a.config.Behaves(p).Annotations, load: loads.of(p),
		})
	}
	slices.SortFunc(all, func(a, b described) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// resourceOf returns the preferred version of a resource and the name of its kind.
func (a *API) resourceOf(
	gr schema.GroupResource,
) (gvr schema.GroupVersionResource, kind string, err error) {
	notFound := apierrors.NewNotFound(customMetrics.WithResource(gr.Resource).GroupResource(),
		gr.String())
	versions := []string{"v1"}
	if gr.Group != "" {
		groups, err := a.config.Discovery.ServerGroups()
		if err != nil {
			return gvr, "", err
		}
		versions = nil
		for i := range groups.Groups {
			if g := &groups.Groups[i]; g.Name == gr.Group {
				for _, v := range g.Versions {
					versions = append(versions, v.GroupVersion)
				}
			}
		}
	}
	for _, version := range versions {
		list, err := a.config.Discovery.ServerResourcesForGroupVersion(version)
		if err != nil {
			return gvr, "", err
		}
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return gvr, "", err
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Name == gr.Resource {
				return gv.WithResource(gr.Resource), r.Kind, nil
			}
		}
	}
	return gvr, "", notFound
}

// external answers requests for external.metrics.k8s.io: namespaces/NAMESPACE/METRIC.
func (a *API) external(r *http.Request, path []string) (any, error) {
	if len(path) != 3 || path[0] != "namespaces" {
		return nil, unknown(r)
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	name, metric := path[1], path[2]
	namespace, err := a.spaces.Get(name)
	if err != nil {
		return nil, err
	}
	series, err := simulated.ParseSeries(namespace.Annotations[simulated.ExternalMetric+metric])
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("annotation %s%s of namespace %s: %v",
			simulated.ExternalMetric, metric, name, err))
	}
	now := time.Now()
	list := externalmetricsv1beta1.ExternalMetricValueList{
		TypeMeta: metav1.TypeMeta{
			Kind: "ExternalMetricValueList", APIVersion: externalMetrics.String(),
		},
		Items: []externalmetricsv1beta1.ExternalMetricValue{},
	}
	for _, s := range series {
		if selector.Matches(s.Labels) {
			list.Items = append(list.Items, externalmetricsv1beta1.ExternalMetricValue{
				MetricName: metric, MetricLabels: s.Labels, Timestamp: metav1.NewTime(now),
				Value: *resource.NewMilliQuantity(s.Amount.At(now, 0), resource.DecimalSI),
			})
		}
	}
	return list, nil
}

// maxNames is how many metrics discovery lists.
const maxNames = 1000

// podMetricNames returns the names of the custom metrics that pods have.
func (a *API) podMetricNames() []string {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil // cannot happen: the lister reads from memory
	}
	names, loads := map[string]bool{}, a.newLoads()
	for _, p := range pods {
		collect(names, simulated.CustomMetric, a.config.Behaves(p).Annotations)
		if owner := loads.owner(p); owner != nil {
			collect(names, simulated.CustomMetric, owner.GetAnnotations())
		}
	}
	return sorted(names)
}

// externalNames returns the names of the external metrics that namespaces have.
func (a *API) externalNames() []string {
	namespaces, err := a.spaces.List(labels.Everything())
	if err != nil {
		return nil // cannot happen: the lister reads from memory
	}
	names := map[string]bool{}
	for _, n := range namespaces {
		collect(names, simulated.ExternalMetric, n.Annotations)
	}
	return sorted(names)
}

func collect(names map[string]bool, prefix string, annotations map[string]string) {
	for key := range annotations {
		if name, ok := strings.CutPrefix(key, prefix); ok && len(names) < maxNames {
			names[name] = true
		}
	}
}

func sorted(names map[string]bool) []string {
	return slices.Sorted(maps.Keys(names))
}
