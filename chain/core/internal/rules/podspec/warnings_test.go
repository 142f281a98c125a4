package podspec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// However many ports and files clash with each other, no more warnings are made than are sent.
func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	volume := corev1.Volume{Name: "v"}
	volume.Secret = &corev1.SecretVolumeSource{}
	c := corev1.Container{Name: "c"}
	for range 2000 {
		c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: 80})
		volume.Secret.Items = append(volume.Secret.Items, corev1.KeyToPath{Key: "k", Path: "p"})
	}
	pod.Spec.Containers, pod.Spec.Volumes = []corev1.Container{c}, []corev1.Volume{volume}
	if n := len(PodWarnings(pod)); n < mostWarnings || n > 2*mostWarnings {
		t.Errorf("%d warnings, want about %d", n, mostWarnings)
	}
}

// The warnings about random ports are those about each pair of them.
func TestPortWarnings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	total := 0
	for range 500 {
		w := &warner{spec: &corev1.PodSpec{Containers: []corev1.Container{{}}}}
		ports := make([]corev1.ContainerPort, random.IntN(8))
		var want []string
		for i := range ports {
			ports[i] = corev1.ContainerPort{
				ContainerPort: int32(random.IntN(2)), HostPort: int32(random.IntN(3)),
				Protocol: []corev1.Protocol{"TCP", "UDP"}[random.IntN(2)],
			}
			if ports[i].HostPort > 0 {
				ports[i].HostIP = []string{"", "10.0.0.1", "10.0.0.2"}[random.IntN(3)]
			}
			at := func(i int) *field.Path {
				return below(nil, field.NewPath("containers").Index(0)).Child("ports").Index(i)
			}
			for j := range i {
				if overlap := overlap(&ports[i], &ports[j]); overlap != "" {
					want = append(want, fmt.Sprintf("%s: %s %s", at(i), overlap, at(j)))
				}
			}
		}
		w.spec.Containers[0].Ports = ports
		if w.ports(); !slices.Equal(w.warnings, want) {
			t.Fatalf("%+v:\n%s\nwant\n%s", ports, strings.Join(w.warnings, "\n"), strings.Join(want, "\n"))
		}
		total += len(want)
	}
	if total < 500 {
		t.Errorf("only %d warnings", total)
	}
}

// The warnings about random files are those about each pair of them.
func TestFileWarnings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	total := 0
	for range 500 {
		files := make([]file, random.IntN(8))
		var want []string
		for i := range files {
			path := []string{"", "a", "a/", "a/b", "a-", "a/b/c", "b", "ab"}[random.IntN(8)]
			files[i] = file{path, fmt.Sprint(i)}
			for j := range i {
				p, other := strings.TrimRight(path, "/"), strings.TrimRight(files[j].path, "/")
				if p != "" && other != "" && (strings.HasPrefix(p+"/", other+"/") ||
					strings.HasPrefix(other+"/", p+"/")) {
					want = append(want, fmt.Sprintf("volume %q: the files %q (%d) and %q (%d) overlap", "v", p, i,
						other, j))
				}
			}
		}
		w := &warner{}
		if w.clashes("v", slices.Clone(files)); !slices.Equal(w.warnings, want) {
			t.Fatalf("%+v:\n%s\nwant\n%s", files, strings.Join(w.warnings, "\n"), strings.Join(want, "\n"))
		}
		total += len(want)
	}
	if total < 500 {
		t.Errorf("only %d warnings", total)
	}
}
