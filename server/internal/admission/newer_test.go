package admission

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewer(t *testing.T) {
	t.Parallel()
	at := func(name string, second int64) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}
	}
	for _, c := range []struct {
		a, b metav1.Object
		want string
	}{
		{nil, at("b", 1), "b"},
		{at("a", 2), at("b", 1), "a"},
		{at("a", 1), at("b", 2), "b"},
		{at("a", 1), at("b", 1), "a"},
		{at("b", 1), at("a", 1), "a"},
	} {
		if got := newer(c.a, c.b).GetName(); got != c.want {
			t.Errorf("newer(%v, %v) returned %s", c.a, c.b, got)
		}
	}
}
