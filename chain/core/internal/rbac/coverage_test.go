package rbac

import (
	"fmt"
	"math/rand/v2"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Random rules over few values are covered if the library says so.
func TestCoversAsTheLibrary(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	some := func(values ...string) (list []string) {
		for _, v := range values {
			if random.IntN(2) == 0 {
				list = append(list, v)
			}
		}
		return list
	}
	rules := func(n int) (list []rbacv1.PolicyRule) {
		for range n {
			r := rbacv1.PolicyRule{Verbs: some("get", "list", "*")}
			if random.IntN(4) == 0 {
				r.NonResourceURLs = some("/", "/a", "/a/b", "/a/*", "*", "/a**")
			} else {
				r.APIGroups, r.Resources = some("", "apps", "*"), some("pods", "pods/log", "*/log", "*")
				if random.IntN(2) == 0 {
					r.ResourceNames = some("", "x", "y", "*")
				}
			}
			list = append(list, r)
		}
		return list
	}
	covered := 0
	for range 20_000 {
		held, rule := rules(1+random.IntN(4)), rules(1)[0]
		want, _ := validation.Covers(held, []rbacv1.PolicyRule{rule})
		got, err := newHolding(held).covers(rule)
		if got != want || err != nil {
			t.Fatalf("%+v covers %+v: %v, %v, want %v", held, rule, got, err, want)
		}
		if got && len(validation.BreakdownRule(rule)) > 0 {
			covered++
		}
	}
	if covered < 1000 {
		t.Errorf("only %d rules were covered", covered)
	}
}

// One rule of a megabyte allows billions of combinations. To find out whether somebody may grant it
// takes no more than its lists do.
func TestCoversBillions(t *testing.T) {
	t.Parallel()
	list := func(name string) (list []string) {
		for i := range 10_000 {
			list = append(list, fmt.Sprint(name, i))
		}
		return list
	}
	huge := []rbacv1.PolicyRule{{
		Verbs: list("v"), APIGroups: list("g"), Resources: list("r"), ResourceNames: list("n"),
	}}
	held := []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: list("r")}}
	if lacking, err := missing(held, huge); len(lacking) > 0 || err != nil {
		t.Errorf("they are held, but: %v", err)
	}
	held[0].Resources = held[0].Resources[1:]
	if _, err := missing(held, huge); err != errMissing {
		t.Errorf("one is not held: %v, want %v", err, errMissing)
	}
}
