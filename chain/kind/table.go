package kind

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// NameColumn is the first column of nearly every table.
func NameColumn() Column {
	return Column{
		Name:        "Name",
		Type:        "string",
		Format:      "name",
		Description: "Name of the object, unique among the objects of its kind in its namespace.",
	}
}

// AgeColumn is the column of [Age].
func AgeColumn() Column {
	return Column{Name: "Age", Type: "string", Description: "Time since the object was created."}
}

// Age returns the cell for the time since obj was created.
func Age(obj Object) string {
	created := obj.GetCreationTimestamp()
	return Since(&created)
}

// Since returns the cell for the time since t, such as "5m", or "<unknown>" if t is not set.
func Since(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func newTableConvertor(k *Kind[Object], resource schema.GroupResource) rest.TableConvertor {
	if k.Table.Row == nil {
		return rest.NewDefaultTableConvertor(resource)
	}
	columns := make([]Column, len(k.Table.Columns))
	for i, c := range k.Table.Columns {
		if c.Type == "" {
			c.Type = "string"
		}
		columns[i] = c
	}
	return tableConvertor{
		columns:    columns,
		row:        k.Table.Row,
		conditions: k.Table.Conditions,
		hidden:     k.Quirks.HiddenAnnotations,
	}
}

type tableConvertor struct {
	columns []Column
	row     func(Object) []any
	// conditions may be nil.
	conditions func(Object) []metav1.TableRowCondition
	// hidden are the annotations to omit.
	hidden []string
}

func (c tableConvertor) ConvertToTable(
	_ context.Context, obj runtime.Object, options runtime.Object,
) (*metav1.Table, error) {
	table := &metav1.Table{}
	o, ok := options.(*metav1.TableOptions)
	if !ok || !o.NoHeaders {
		table.ColumnDefinitions = c.columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if common, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = common.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(obj,
		func(o runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
			return c.row(o.(Object)), nil
		})
	for i := range table.Rows {
		row := &table.Rows[i]
		if c.conditions != nil {
			row.Conditions = c.conditions(row.Object.Object.(Object))
		}
		if len(c.hidden) > 0 && (!ok || o.IncludeObject != metav1.IncludeObject) {
			row.Object.Object = withoutAnnotations(row.Object.Object.(Object), c.hidden)
		}
	}
	return table, err
}

// withoutAnnotations returns a shallow copy of obj without the named annotations.
func withoutAnnotations(obj Object, names []string) Object {
	value := reflect.ValueOf(obj).Elem()
	without := reflect.New(value.Type()).Interface().(Object)
	reflect.ValueOf(without).Elem().Set(value)
	annotations := maps.Clone(obj.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool { return slices.Contains(names, name) })
	without.SetAnnotations(annotations)
	return without
}
