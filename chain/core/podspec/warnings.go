package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/rules"
)

// TemplateWarnings are about what is allowed in a template at path but unwise. The old template does not matter so far.
func TemplateWarnings(path *field.Path, tmpl, _ *corev1.PodTemplateSpec) []string {
	w := &warner{spec: &tmpl.Spec, annotations: tmpl.Annotations, path: path.Child("spec"), meta: path.Child("metadata")}
	return w.all()
}

// PodWarnings are about what is allowed in a pod but unwise. On create, old is nil.
func PodWarnings(pod, old *corev1.Pod) []string {
	w := &warner{spec: &pod.Spec, annotations: pod.Annotations, path: field.NewPath("spec"), meta: field.NewPath("metadata"), pod: true}
	if old == nil && len(validation.IsDNS1123Label(pod.Name)) > 0 && pod.Name != "" {
		w.warn(field.NewPath("metadata", "name"), "is the pod's hostname too: a DNS label avoids surprises")
	}
	return w.all()
}

// warner collects the warnings about one spec.
type warner struct {
	spec        *corev1.PodSpec
	annotations map[string]string
	path, meta  *field.Path
	pod         bool
	warnings    []string
}

func (w *warner) warn(path *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

func (w *warner) all() []string {
	w.nodes()
	w.selectors()
	w.hostAliases()
	w.volumes()
	w.pullSecrets()
	w.profileAnnotations()
	if s := w.spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.warn(w.path.Child("terminationGracePeriodSeconds"), "must not be negative; 1 is used")
	}
	w.wholeBytes(w.spec.Overhead, w.path.Child("overhead"))
	if r := w.spec.Resources; r != nil {
		w.wholeBytes(r.Limits, w.path.Child("resources", "limits"))
		w.wholeBytes(r.Requests, w.path.Child("resources", "requests"))
	}
	w.dns()
	w.containers()
	w.duplicatePortNames()
	return w.warnings
}

func (w *warner) nodes() {
	for _, key := range sets.List(sets.KeySet(w.spec.NodeSelector)) {
		if advice, ok := rules.DeprecatedNodeLabel(key); ok {
			w.warn(w.path.Child("nodeSelector").Key(key), "%s", advice)
		}
	}
	a := w.spec.Affinity
	if a == nil || a.NodeAffinity == nil {
		return
	}
	at := w.path.Child("affinity", "nodeAffinity")
	if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		for i := range required.NodeSelectorTerms {
			w.warnings = append(w.warnings, rules.NodeSelectorTermWarnings(&required.NodeSelectorTerms[i], false, terms.Index(i))...)
		}
	}
	preferred := a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for i := range preferred {
		p := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference")
		w.warnings = append(w.warnings, rules.NodeSelectorTermWarnings(&preferred[i].Preference, true, p)...)
	}
}

// selectors warns of selectors that match no pod because they are null.
func (w *warner) selectors() {
	const matchesNothing = "a null selector matches no pod"
	for i, c := range w.spec.TopologySpreadConstraints {
		at := w.path.Child("topologySpreadConstraints").Index(i)
		if advice, ok := rules.DeprecatedNodeLabel(c.TopologyKey); ok {
			w.warn(at.Child("topologyKey"), "%s: %s", c.TopologyKey, advice)
		}
		if c.LabelSelector == nil {
			w.warn(at.Child("labelSelector"), matchesNothing)
		}
	}
	null := func(selector *metav1.LabelSelector, at *field.Path) {
		if selector == nil {
			w.warn(at.Child("labelSelector"), matchesNothing)
		}
	}
	terms := func(at *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i, t := range required {
			null(t.LabelSelector, at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i, t := range preferred {
			null(t.PodAffinityTerm.LabelSelector, at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if a := w.spec.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			terms(w.path.Child("affinity", "podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			terms(w.path.Child("affinity", "podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
}

func (w *warner) hostAliases() {
	seen := sets.Set[string]{}
	for i, alias := range w.spec.HostAliases {
		at := w.path.Child("hostAliases").Index(i).Child("ip")
		if seen.Has(alias.IP) {
			w.warn(at, "%q is there twice: clients that merge lists by address lose one", alias.IP)
		}
		seen.Insert(alias.IP)
		w.warnings = append(w.warnings, validation.GetWarningsForIP(at, alias.IP)...)
	}
}

func (w *warner) dns() {
	if w.spec.DNSConfig == nil {
		return
	}
	at := w.path.Child("dnsConfig")
	for i, server := range w.spec.DNSConfig.Nameservers {
		w.warnings = append(w.warnings, validation.GetWarningsForIP(at.Child("nameservers").Index(i), server)...)
	}
}

func (w *warner) pullSecrets() {
	seen := sets.Set[string]{}
	for i, ref := range w.spec.ImagePullSecrets {
		at := w.path.Child("imagePullSecrets").Index(i).Child("name")
		switch {
		case ref.Name == "":
			w.warn(at, "names no secret")
		case seen.Has(ref.Name):
			w.warn(at, "%q is there twice", ref.Name)
		}
		seen.Insert(ref.Name)
	}
}

func (w *warner) volumes() {
	for i, v := range w.spec.Volumes {
		at := w.path.Child("volumes").Index(i)
		gone := func(set bool, name string) {
			if set {
				w.warn(at.Child(name), "this type of volume is deprecated and served by no kubelet any more")
			}
		}
		gone(v.PhotonPersistentDisk != nil, "photonPersistentDisk")
		gone(v.GitRepo != nil, "gitRepo")
		gone(v.ScaleIO != nil, "scaleIO")
		gone(v.Flocker != nil, "flocker")
		gone(v.StorageOS != nil, "storageOS")
		gone(v.Quobyte != nil, "quobyte")
		gone(v.Glusterfs != nil, "glusterfs")
		gone(v.CephFS != nil, "cephfs")
		gone(v.RBD != nil, "rbd")
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			w.warnings = append(w.warnings, rules.ClaimSpecWarnings(at.Child("ephemeral", "volumeClaimTemplate", "spec"), &v.Ephemeral.VolumeClaimTemplate.Spec)...)
		}
		w.overlaps(&v, at)
	}
}

// overlaps warns of files that hide each other in one volume.
func (w *warner) overlaps(v *corev1.Volume, at *field.Path) {
	var paths []string
	keys := func(items []corev1.KeyToPath) {
		for _, item := range items {
			paths = append(paths, item.Path)
		}
	}
	files := func(items []corev1.DownwardAPIVolumeFile) {
		for _, item := range items {
			paths = append(paths, item.Path)
		}
	}
	name := ""
	switch {
	case v.ConfigMap != nil:
		name = "configMap"
		keys(v.ConfigMap.Items)
	case v.Secret != nil:
		name = "secret"
		keys(v.Secret.Items)
	case v.DownwardAPI != nil:
		name = "downwardAPI"
		files(v.DownwardAPI.Items)
	case v.Projected != nil:
		name = "projected"
		for _, s := range v.Projected.Sources {
			switch {
			case s.ConfigMap != nil:
				keys(s.ConfigMap.Items)
			case s.Secret != nil:
				keys(s.Secret.Items)
			case s.DownwardAPI != nil:
				files(s.DownwardAPI.Items)
			case s.ServiceAccountToken != nil:
				paths = append(paths, s.ServiceAccountToken.Path)
			case s.ClusterTrustBundle != nil:
				paths = append(paths, s.ClusterTrustBundle.Path)
			}
		}
	}
	for i, path := range paths {
		for _, other := range paths[:i] {
			if path == other || strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/") {
				w.warn(at.Child(name), "the files %q and %q overlap", other, path)
				break
			}
		}
	}
}

// profileAnnotations warns of annotations that fields have replaced, where the field is not set. Pods get the field of AppArmor from it.
func (w *warner) profileAnnotations() {
	annotations := w.meta.Child("annotations")
	if _, ok := w.annotations[seccompPodAnnotation]; ok && (w.spec.SecurityContext == nil || w.spec.SecurityContext.SeccompProfile == nil) {
		w.warn(annotations.Key(seccompPodAnnotation), "does nothing since v1.27: use the field securityContext.seccompProfile")
	}
	if _, ok := w.annotations["scheduler.alpha.kubernetes.io/critical-pod"]; ok {
		w.warn(annotations.Key("scheduler.alpha.kubernetes.io/critical-pod"), "does nothing since v1.16: use the field priorityClassName")
	}
	eachContainer(w.spec, func(c *corev1.Container, _ *field.Path) {
		sc := c.SecurityContext
		if _, ok := w.annotations[seccompContainerAnnotation+c.Name]; ok && (sc == nil || sc.SeccompProfile == nil) {
			w.warn(annotations.Key(seccompContainerAnnotation+c.Name), "does nothing since v1.27: use the field securityContext.seccompProfile")
		}
		if _, ok := w.annotations[apparmorAnnotation+c.Name]; ok && !w.pod && (sc == nil || sc.AppArmorProfile == nil) {
			w.warn(annotations.Key(apparmorAnnotation+c.Name), "is deprecated since v1.30: use the field securityContext.appArmorProfile")
		}
	})
}

func (w *warner) containers() {
	eachContainer(w.spec, func(c *corev1.Container, p *field.Path) {
		at := below(w.path, p)
		w.wholeBytes(c.Resources.Limits, at.Child("resources", "limits"))
		w.wholeBytes(c.Resources.Requests, at.Child("resources", "requests"))
		w.duplicateEnv(c, at)
		w.duplicatePorts(c, at)
	})
}

// wholeBytes warns of fractions of bytes, such as the 100m that somebody wrote for 100M.
func (w *warner) wholeBytes(list corev1.ResourceList, at *field.Path) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if quantity, ok := list[name]; ok && quantity.MilliValue()%1000 != 0 {
			w.warn(at.Key(string(name)), "%s is no whole number of bytes", quantity.String())
		}
	}
}

// duplicateEnv warns of variables that hide an earlier definition without using it.
func (w *warner) duplicateEnv(c *corev1.Container, at *field.Path) {
	defined := map[string]corev1.EnvVar{}
	for i, e := range c.Env {
		before, ok := defined[e.Name]
		uses := strings.Contains(e.Value, "$("+e.Name+")")
		if ok && !uses && (before.Value != "" || before.ValueFrom != nil || e.Value != "") {
			w.warn(at.Child("env").Index(i), "hides the earlier definition of %q", e.Name)
		}
		defined[e.Name] = e
	}
}

// duplicatePorts warns of ports of one container that cannot be told apart.
func (w *warner) duplicatePorts(c *corev1.Container, at *field.Path) {
	for i, port := range c.Ports {
		same := func(other corev1.ContainerPort) bool {
			return port.Protocol == other.Protocol && port.ContainerPort == other.ContainerPort &&
				(port.HostPort == 0 || other.HostPort == 0 || port.HostPort == other.HostPort) &&
				(port.HostIP == "" || other.HostIP == "" || port.HostIP == other.HostIP)
		}
		if slices.ContainsFunc(c.Ports[:i], same) {
			w.warn(at.Child("ports").Index(i), "is a port that is there already, wholly or in part")
		}
	}
}

// duplicatePortNames warns of ports of several running containers that services and probes cannot tell apart by name.
func (w *warner) duplicatePortNames() {
	seen := map[string]string{}
	eachContainer(w.spec, func(c *corev1.Container, p *field.Path) {
		if strings.HasPrefix(p.String(), "initContainers") && !isSidecar(c) {
			return
		}
		for i, port := range c.Ports {
			at := below(w.path, p).Child("ports").Index(i).Child("name")
			if other, ok := seen[port.Name]; ok && port.Name != "" && other != c.Name {
				w.warn(at, "%q is the name of a port of the container %s too", port.Name, other)
				continue
			}
			seen[port.Name] = c.Name
		}
	})
}
