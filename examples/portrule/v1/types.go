// Package v1 has the types of the kind PortRule, for the folders apiserver and sdk.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the version of the kind.
var GroupVersion = schema.GroupVersion{Group: "net.example.com", Version: "v1"}

// PortRule opens a range of ports.
type PortRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PortRuleSpec   `json:"spec"`
	Status            PortRuleStatus `json:"status,omitempty"`
}

// PortRuleSpec is the range, both ends included. The default protocol is TCP.
type PortRuleSpec struct {
	Protocol string `json:"protocol,omitempty"`
	From     int32  `json:"from"`
	To       int32  `json:"to"`
}

// PortRuleStatus says what became of a rule.
type PortRuleStatus struct {
	Phase string `json:"phase,omitempty"`
}

// PortRuleList is a list of rules.
type PortRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PortRule `json:"items"`
}

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PortRule{}, &PortRuleList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (p *PortRule) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *PortRuleList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]PortRule, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*PortRule)
	}
	return &out
}
