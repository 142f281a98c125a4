package main

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A role is a role or a binding.
type role struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Rules    []struct {
		Groups    []string `yaml:"apiGroups"`
		Resources []string
		Names     []string `yaml:"resourceNames"`
		Paths     []string `yaml:"nonResourceURLs"`
		Verbs     []string
	}
	Aggregation struct {
		Selectors []struct {
			Labels map[string]string `yaml:"matchLabels"`
		} `yaml:"clusterRoleSelectors"`
	} `yaml:"aggregationRule"`
	Role     struct{ Kind, Name string } `yaml:"roleRef"`
	Subjects []struct{ Kind, Namespace, Name string }
}

// roles reads the roles and bindings that kube-apiserver creates with its default feature gates.
func roles(s sources, _ version) (facts, error) {
	found := facts{}
	for _, name := range []string{
		"cluster-roles", "cluster-role-bindings", "controller-roles", "controller-role-bindings",
		"namespace-roles", "namespace-role-bindings",
	} {
		data, err := s.open("k8s.io/kubernetes",
			"plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/"+name+".yaml")
		if err != nil {
			return nil, err
		}
		var list struct{ Items []role }
		if err := yaml.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("%s has no items", name)
		}
		for _, r := range list.Items {
			subject := strings.Trim(r.Metadata.Namespace+"/"+r.Kind+"/"+r.Metadata.Name, "/")
			for _, fact := range r.facts() {
				found[subject+" "+fact] = ""
			}
		}
	}
	return found, nil
}

func (r role) facts() []string {
	var all []string
	for _, rule := range r.Rules {
		slices.Sort(rule.Verbs)
		for _, group := range append(rule.Groups, rule.Paths...) {
			fact := strings.Join(rule.Verbs, ",") + " " + group
			if len(rule.Resources) > 0 {
				fact = strings.TrimSuffix(strings.Join(rule.Verbs, ",")+" "+
					strings.Join(rule.Resources, ",")+"."+group, ".")
			}
			if len(rule.Names) > 0 {
				fact += " named " + strings.Join(rule.Names, ",")
			}
			all = append(all, fact)
		}
	}
	for _, selector := range r.Aggregation.Selectors {
		all = append(all, fmt.Sprint("aggregates ", selector.Labels))
	}
	for _, subject := range r.Subjects {
		all = append(all, fmt.Sprintf("gives %s/%s to %s", r.Role.Kind, r.Role.Name,
			strings.Join(strings.Fields(subject.Kind+" "+subject.Namespace+" "+subject.Name), " ")))
	}
	if all == nil {
		all = []string{"has no rules"}
	}
	return all
}
