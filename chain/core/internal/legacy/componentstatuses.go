package legacy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Component is a control plane component whose health can be checked.
type Component struct {
	// Name is the name of the ComponentStatus, such as "etcd-0".
	Name string
	// Check returns an error if the component is unhealthy.
	Check func(ctx context.Context) error
}

// ComponentStatuses declares componentstatuses, a deprecated view of the health of the control
// plane. kube-apiserver probes etcd, the scheduler and the controller manager at fixed ports. Here,
// the caller supplies the components and their checks.
func ComponentStatuses(components []Component) *kind.Virtual {
	return &kind.Virtual{
		Plural: "componentstatuses",
		New:    func() rest.Storage { return componentStatuses(components) },
	}
}

type componentStatuses []Component

var (
	_ rest.Getter               = componentStatuses{}
	_ rest.Lister               = componentStatuses{}
	_ rest.Scoper               = componentStatuses{}
	_ rest.SingularNameProvider = componentStatuses{}
	_ rest.ShortNamesProvider   = componentStatuses{}
)

func (componentStatuses) New() runtime.Object     { return &corev1.ComponentStatus{} }
func (componentStatuses) NewList() runtime.Object { return &corev1.ComponentStatusList{} }
func (componentStatuses) Destroy()                {}
func (componentStatuses) NamespaceScoped() bool   { return false }
func (componentStatuses) GetSingularName() string { return "componentstatus" }
func (componentStatuses) ShortNames() []string    { return []string{"cs"} }

func (cs componentStatuses) Get(
	ctx context.Context, name string, _ *metav1.GetOptions,
) (runtime.Object, error) {
	for _, c := range cs {
		if c.Name == name {
			return c.status(ctx), nil
		}
	}
	// Like kube-apiserver, report the singular name of the resource.
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: cs.GetSingularName()}, name)
}

func (cs componentStatuses) List(
	ctx context.Context, options *metainternalversion.ListOptions,
) (runtime.Object, error) {
	label, name := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		label = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		name = options.FieldSelector
	}
	list := &corev1.ComponentStatusList{Items: []corev1.ComponentStatus{}}
	for _, c := range cs {
		if label.Matches(labels.Set{}) && name.Matches(fields.Set{metav1.ObjectNameField: c.Name}) {
			list.Items = append(list.Items, *c.status(ctx))
		}
	}
	return list, nil
}

func (c Component) status(ctx context.Context) *corev1.ComponentStatus {
	healthy := corev1.ComponentCondition{
		Type:    corev1.ComponentHealthy,
		Status:  corev1.ConditionTrue,
		Message: "ok",
	}
	if err := c.Check(ctx); err != nil {
		healthy.Status, healthy.Message, healthy.Error = corev1.ConditionFalse, "", err.Error()
	}
	return &corev1.ComponentStatus{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Conditions: []corev1.ComponentCondition{healthy},
	}
}

func (cs componentStatuses) ConvertToTable(
	_ context.Context, obj, options runtime.Object,
) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = []metav1.TableColumnDefinition{
			kind.NameColumn(),
			{Name: "Status", Type: "string", Description: "Whether the component is healthy."},
			{Name: "Message", Type: "string", Description: "Message of the health check."},
			{Name: "Error", Type: "string", Description: "Error of the health check."},
		}
	}
	var items []corev1.ComponentStatus
	switch o := obj.(type) {
	case *corev1.ComponentStatus:
		items = []corev1.ComponentStatus{*o}
	case *corev1.ComponentStatusList:
		items = o.Items
	}
	for i := range items {
		status := "Unhealthy"
		c := items[i].Conditions[0]
		if c.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{items[i].Name, status, c.Message, c.Error},
			Object: runtime.RawExtension{Object: &items[i]},
		})
	}
	return table, nil
}
