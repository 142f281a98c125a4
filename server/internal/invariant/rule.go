// Package invariant checks that expressions in CEL are true at each revision of a control plane.
//
// A [Rule] is an expression about the objects of some resources, such as "pods.size() <= 3", or
// about the changes of one, such as "claims: old == null || new != null". [Compile] finds the
// resources that rules name. [Set.Watch] records what happens to the objects, and [Checker.Check]
// evaluates the rules at each revision in order, each only when an object has changed that it is
// about.
package invariant

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/kinproc/kinproc/server/internal/nearest"
)

// The variables for the object before and after a change. They are null at its creation and at its
// deletion.
const oldVariable, newVariable = "old", "new"

// A Rule is what is to be true at each revision.
type Rule struct {
	text string
	// resource is the one whose changes the rule is about, or empty if it is about lists only.
	resource   string
	expression string
}

// Error is of a rule that cannot be used.
type Error struct {
	Rule string
	err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%q: %v", e.Rule, e.err) }

// Unwrap returns what is wrong with the rule.
func (e *Error) Unwrap() error { return e.err }

// prefixed is a rule about the changes of a resource. No expression of CEL begins like that.
var prefixed = regexp.MustCompile(`(?s)^\s*([a-z0-9][a-z0-9.-]*)\s*:\s*(.*)$`)

// Parse reads a rule, "CEL" or "RESOURCE: CEL". Whether its resources exist shows later.
func Parse(text string) (*Rule, error) {
	r := &Rule{text: text, expression: text}
	if match := prefixed.FindStringSubmatch(text); match != nil {
		r.resource, r.expression = match[1], match[2]
	}
	env, err := base()
	if err != nil {
		return nil, err
	}
	if _, issues := env.Parse(r.expression); issues.Err() != nil {
		return nil, &Error{text, located(issues)}
	}
	return r, nil
}

// ParseAll reads several rules.
func ParseAll(texts []string) (all []*Rule, err error) {
	var errs []error
	for _, text := range texts {
		r, err := Parse(text)
		all, errs = append(all, r), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// located returns what is wrong with an expression, and where, in a line for each.
func located(issues *cel.Issues) error {
	var errs []error
	for _, e := range issues.Errors() {
		errs = append(errs, fmt.Errorf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1,
			e.Message))
	}
	return errors.Join(errs...)
}

// base returns CEL as kube-apiserver has it, with its limit of what an evaluation may cost.
func base() (*cel.Env, error) {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).
		Env(environment.NewExpressions)
}

// A Set is rules that can be evaluated, for control planes that serve the same resources.
type Set struct {
	rules     []*compiled
	resources []schema.GroupVersionResource // that the rules name
}

// compiled is a rule that can be evaluated.
type compiled struct {
	text    string
	program cel.Program
	lists   map[string]schema.GroupVersionResource // by variable
	changes bool                                   // the rule is about changes of one resource only
	of      schema.GroupVersionResource            // this one
}

// Compile finds the resources that rules name, among those that are served. It returns an [Error]
// if one cannot be used.
func Compile(rules []*Rule, served []schema.GroupVersionResource) (*Set, error) {
	s := &Set{}
	if len(rules) == 0 {
		return s, nil
	}
	variables := variablesOf(served)
	options := []cel.EnvOption{
		cel.Variable(oldVariable, cel.DynType), cel.Variable(newVariable, cel.DynType),
	}
	for name := range variables {
		options = append(options, cel.Variable(name, cel.ListType(cel.DynType)))
	}
	env, err := base()
	if err == nil {
		env, err = env.Extend(options...)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		c, err := r.compile(env, variables, served)
		if err != nil {
			return nil, &Error{r.text, err}
		}
		s.rules = append(s.rules, c)
		for _, resource := range c.resources() {
			if !slices.Contains(s.resources, resource) {
				s.resources = append(s.resources, resource)
			}
		}
	}
	return s, nil
}

// resources returns those that the rule names.
func (c *compiled) resources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	if c.changes {
		all = append(all, c.of)
	}
	for _, r := range c.lists {
		all = append(all, r)
	}
	return all
}

// identifier is what can be a variable. It may have dots.
var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*$`)

// variablesOf returns the names of resources in expressions: plural names, or with the group if
// several groups have the same one.
func variablesOf(served []schema.GroupVersionResource) map[string]schema.GroupVersionResource {
	count := map[string]int{}
	for _, r := range served {
		count[r.Resource]++
	}
	all := map[string]schema.GroupVersionResource{}
	for _, r := range served {
		name := r.Resource
		if count[name] > 1 {
			name = r.GroupResource().String()
		}
		if identifier.MatchString(name) {
			all[name] = r
		}
	}
	return all
}

func (r *Rule) compile(
	env *cel.Env, variables map[string]schema.GroupVersionResource,
	served []schema.GroupVersionResource,
) (*compiled, error) {
	checked, issues := env.Compile(r.expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%w%s", located(issues), r.questions(env, variables))
	}
	if t := checked.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, fmt.Errorf("the value is a %s, not a bool", t)
	}
	c := &compiled{
		text: r.text, lists: map[string]schema.GroupVersionResource{}, changes: r.resource != "",
	}
	for _, reference := range checked.NativeRep().ReferenceMap() {
		name := reference.Name
		if resource, ok := variables[name]; ok {
			c.lists[name] = resource
		}
		if (name == oldVariable || name == newVariable) && !c.changes {
			return nil, errors.New("old and new are those of a resource, which comes first, such as in " +
				`"pods: old == null || new != null"`)
		}
	}
	if c.changes {
		var err error
		if c.of, err = find(r.resource, served); err != nil {
			return nil, err
		}
	} else if len(c.lists) == 0 {
		return nil, errors.New("no resource is named, such as pods")
	}
	var err error
	c.program, err = env.Program(checked)
	return c, err
}

// find returns the resource of a name, which may have the group.
func find(
	name string, served []schema.GroupVersionResource,
) (found schema.GroupVersionResource, err error) {
	var same, names []string
	for _, r := range served {
		full := r.GroupResource().String()
		if names = append(names, r.Resource); full != r.Resource {
			names = append(names, full)
		}
		if full == name {
			return r, nil
		}
		if r.Resource == name {
			found, same = r, append(same, full)
		}
	}
	switch {
	case len(same) == 1:
		return found, nil
	case len(same) > 1:
		return found, fmt.Errorf("%s is the name of several resources: %s", name,
			strings.Join(same, ", "))
	}
	if q := nearest.Ask(name, names); q != "" {
		return found, fmt.Errorf("there is no resource %s: %s", name, q)
	}
	return found, fmt.Errorf("there is no resource %s", name)
}

// questions returns a line for each name in an expression that may be that of a resource, misspelt.
func (r *Rule) questions(
	env *cel.Env, variables map[string]schema.GroupVersionResource,
) string {
	parsed, issues := env.Parse(r.expression)
	if issues.Err() != nil {
		return ""
	}
	var names, used []string
	declared := map[string]bool{oldVariable: true, newVariable: true}
	for name := range variables {
		names, declared[name] = append(names, name), true
	}
	slices.Sort(names)
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			used = append(used, e.AsIdent())
		case ast.ComprehensionKind:
			loop := e.AsComprehension()
			declared[loop.IterVar()], declared[loop.IterVar2()] = true, true
			declared[loop.AccuVar()] = true
		}
	}))
	text := ""
	for _, name := range used {
		if declared[name] {
			continue
		}
		declared[name] = true
		var groups []string // that have a resource of this name
		for _, n := range names {
			if strings.HasPrefix(n, name+".") {
				groups = append(groups, n)
			}
		}
		if len(groups) > 0 {
			text += fmt.Sprintf("\n%s: write %s", name, strings.Join(groups, " or "))
		} else if q := nearest.Ask(name, names); q != "" {
			text += "\n" + name + ": " + q
		}
	}
	return text
}
