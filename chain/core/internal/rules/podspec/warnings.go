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

	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
)

// TemplateWarnings returns warnings about what is allowed but unwise in the template at path. It
// does not use the old template so far.
func TemplateWarnings(path *field.Path, tmpl, _ *corev1.PodTemplateSpec) []string {
	w := &warner{
		spec:        &tmpl.Spec,
		annotations: tmpl.Annotations,
		path:        path.Child("spec"),
		meta:        path.Child("metadata"),
	}
	return w.all()
}

// PodWarnings returns warnings about what is allowed but unwise in a new pod. Updates cause no
// warnings, because pods are rarely changed by hand.
func PodWarnings(pod *corev1.Pod) []string {
	w := &warner{
		spec:        &pod.Spec,
		annotations: pod.Annotations,
		path:        field.NewPath("spec"),
		meta:        field.NewPath("metadata"),
		pod:         true,
	}
	if len(validation.IsDNS1123Label(pod.Name)) > 0 {
		w.warn(field.NewPath("metadata", "name"),
			"the name is used as the pod's hostname; a DNS label is recommended")
	}
	return w.all()
}

// warner collects the warnings about a spec.
type warner struct {
	spec        *corev1.PodSpec
	annotations map[string]string
	path, meta  *field.Path
	pod         bool
	warnings    []string
}

// mostWarnings is more than a client gets: the API server sends 4,096 characters of warnings. In a
// pod with thousands of ports or files, each may clash with each.
const mostWarnings = 200

func (w *warner) enough() bool { return len(w.warnings) >= mostWarnings }

func (w *warner) warn(path *field.Path, format string, args ...any) {
	if !w.enough() {
		w.warnings = append(w.warnings, path.String()+": "+fmt.Sprintf(format, args...))
	}
}

func (w *warner) all() []string {
	w.nodes()
	w.selectors()
	w.hostAliases()
	w.volumes()
	w.pullSecrets()
	w.profileAnnotations()
	if s := w.spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.warn(w.path.Child("terminationGracePeriodSeconds"), "must not be negative; 1 is used instead")
	}
	w.wholeBytes(w.spec.Overhead, w.path.Child("overhead"))
	w.dns()
	w.containers()
	w.ports()
	return w.warnings
}

func (w *warner) nodes() {
	for _, key := range sets.List(sets.KeySet(w.spec.NodeSelector)) {
		if advice, ok := nodeselectors.DeprecatedLabel(key); ok {
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
			w.warnings = append(w.warnings, nodeselectors.TermWarnings(&required.NodeSelectorTerms[i],
				false, terms.Index(i))...)
		}
	}
	preferred := a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for i := range preferred {
		p := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference")
		w.warnings = append(w.warnings, nodeselectors.TermWarnings(&preferred[i].Preference, true, p)...)
	}
}

// selectors warns about null selectors, which match no pods.
func (w *warner) selectors() {
	const matchesNothing = "a null labelSelector matches no pods"
	for i, c := range w.spec.TopologySpreadConstraints {
		at := w.path.Child("topologySpreadConstraints").Index(i)
		if advice, ok := nodeselectors.DeprecatedLabel(c.TopologyKey); ok {
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
	terms := func(
		at *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm,
	) {
		for i, t := range required {
			null(t.LabelSelector, at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i, t := range preferred {
			null(t.PodAffinityTerm.LabelSelector,
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if a := w.spec.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			terms(w.path.Child("affinity", "podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			terms(w.path.Child("affinity", "podAntiAffinity"),
				p.RequiredDuringSchedulingIgnoredDuringExecution,
				p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
}

func (w *warner) hostAliases() {
	seen := sets.Set[string]{}
	for i, alias := range w.spec.HostAliases {
		at := w.path.Child("hostAliases").Index(i).Child("ip")
		if seen.Has(alias.IP) {
			w.warn(at,
				"duplicate IP address %q: clients that merge the list by address lose an entry", alias.IP)
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
		w.warnings = append(w.warnings,
			validation.GetWarningsForIP(at.Child("nameservers").Index(i), server)...)
	}
}

func (w *warner) pullSecrets() {
	seen := sets.Set[string]{}
	for i, ref := range w.spec.ImagePullSecrets {
		at := w.path.Child("imagePullSecrets").Index(i).Child("name")
		if ref.Name == "" {
			w.warn(at, "must specify the name of a secret")
		}
		if seen.Has(ref.Name) {
			w.warn(at, "duplicate name %q", ref.Name)
		}
		seen.Insert(ref.Name)
	}
}

func (w *warner) volumes() {
	for i, v := range w.spec.Volumes {
		at := w.path.Child("volumes").Index(i)
		gone := func(set bool, name string) {
			if set {
				w.warn(at.Child(name), "this volume type is deprecated and no longer supported by the kubelet")
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
			w.warnings = append(w.warnings, claims.Warnings(
				at.Child("ephemeral", "volumeClaimTemplate", "spec"), &v.Ephemeral.VolumeClaimTemplate.Spec)...)
		}
		w.overlaps(&v)
	}
}

// file is a file in a volume: its path and a description of its source.
type file struct{ path, source string }

func keyFiles(items []corev1.KeyToPath, source string) []file {
	files := make([]file, 0, len(items))
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile, source string) []file {
	files := make([]file, 0, len(items))
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

// overlaps warns about files that hide each other in a volume.
func (w *warner) overlaps(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		w.clashes(v.Name, keyFiles(v.ConfigMap.Items, "configMap"))
	case v.Secret != nil:
		w.clashes(v.Name, keyFiles(v.Secret.Items, "secret"))
	case v.DownwardAPI != nil:
		w.clashes(v.Name, downwardFiles(v.DownwardAPI.Items, "downwardAPI"))
	case v.Projected != nil:
		var files []file
		for _, s := range v.Projected.Sources {
			if s == (corev1.VolumeProjection{}) {
				w.warnings = append(w.warnings, fmt.Sprintf("volume %q has an empty source", v.Name))
				continue
			}
			files = append(files, projectedFiles(&s)...)
		}
		w.clashes(v.Name, files)
	}
}

func projectedFiles(s *corev1.VolumeProjection) []file {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return keyFiles(s.ConfigMap.Items, "configMap "+s.ConfigMap.Name)
	case s.Secret != nil && s.Secret.Items != nil:
		return keyFiles(s.Secret.Items, "secret "+s.Secret.Name)
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return downwardFiles(s.DownwardAPI.Items, "downwardAPI")
	case s.ServiceAccountToken != nil:
		return []file{{s.ServiceAccountToken.Path, "serviceAccountToken"}}
	case s.ClusterTrustBundle != nil && s.ClusterTrustBundle.Name != nil:
		return []file{{s.ClusterTrustBundle.Path, "clusterTrustBundle " + *s.ClusterTrustBundle.Name}}
	case s.ClusterTrustBundle != nil && s.ClusterTrustBundle.SignerName != nil:
		return []file{
			{s.ClusterTrustBundle.Path, "clusterTrustBundle " + *s.ClusterTrustBundle.SignerName},
		}
	case s.PodCertificate != nil:
		c := s.PodCertificate
		return []file{
			{c.CertificateChainPath, "certificate chain of podCertificate"},
			{c.KeyPath, "key of podCertificate"},
			{c.CredentialBundlePath, "credential bundle of podCertificate"},
		}
	}
	return nil
}

// clashes warns about each pair of files with the same path or one path below the other.
func (w *warner) clashes(volume string, files []file) {
	// With a slash at the end, the path of a directory is the beginning of all paths below it,
	// which follow it when sorted.
	order := make([]int, 0, len(files))
	for i := range files {
		if files[i].path = strings.TrimRight(files[i].path, "/"); files[i].path != "" {
			files[i].path += "/"
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return strings.Compare(files[i].path, files[j].path)
	})
	var pairs [][]int // the later file first
	var above []int   // the files on the way to the next one
	for _, i := range order {
		for n := len(above); n > 0 && !strings.HasPrefix(files[i].path, files[above[n-1]].path); n-- {
			above = above[:n-1]
		}
		for _, j := range above[:min(len(above), mostWarnings-len(pairs))] {
			pairs = append(pairs, []int{max(i, j), min(i, j)})
		}
		above = append(above, i)
	}
	slices.SortFunc(pairs, slices.Compare)
	for _, pair := range pairs {
		f, other := files[pair[0]], files[pair[1]]
		w.warnings = append(w.warnings, fmt.Sprintf("volume %q: the files %q (%s) and %q (%s) overlap",
			volume, strings.TrimSuffix(f.path, "/"), f.source, strings.TrimSuffix(other.path, "/"),
			other.source))
	}
}

// profileAnnotations warns about annotations that fields have replaced, unless the field is set.
// Pods have their AppArmor field set from the annotation.
func (w *warner) profileAnnotations() {
	deprecated := func(key, advice string) {
		if _, ok := w.annotations[key]; ok {
			w.warn(w.meta.Child("annotations").Key(key), "%s", advice)
		}
	}
	deprecated("scheduler.alpha.kubernetes.io/critical-pod",
		"non-functional since v1.16; use the priorityClassName field instead")
	deprecated("security.alpha.kubernetes.io/sysctls",
		"non-functional since v1.11; use the securityContext.sysctls field instead")
	deprecated("security.alpha.kubernetes.io/unsafe-sysctls",
		"non-functional since v1.11; use the securityContext.sysctls field instead")
	const useSeccomp = "non-functional since v1.27; use the securityContext.seccompProfile " +
		"field instead"
	if w.spec.SecurityContext == nil || w.spec.SecurityContext.SeccompProfile == nil {
		deprecated(seccompPodAnnotation, useSeccomp)
	}
	eachContainer(w.spec, func(c *corev1.Container, _ *field.Path) {
		if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
			deprecated(seccompContainerAnnotation+c.Name, useSeccomp)
		}
		if !w.pod && AppArmorProfile(w.spec, c) == nil {
			deprecated(apparmorAnnotation+c.Name,
				"deprecated since v1.30; use the securityContext.appArmorProfile field instead")
		}
	})
}

func (w *warner) containers() {
	eachContainer(w.spec, func(c *corev1.Container, p *field.Path) {
		at := below(w.path, p)
		w.wholeBytes(c.Resources.Limits, at.Child("resources", "limits"))
		w.wholeBytes(c.Resources.Requests, at.Child("resources", "requests"))
		w.duplicateEnv(c, at)
	})
}

// wholeBytes warns about fractions of bytes, such as 100m written by mistake for 100M.
func (w *warner) wholeBytes(list corev1.ResourceList, at *field.Path) {
	for _, name := range []corev1.ResourceName{
		corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	} {
		if quantity, ok := list[name]; ok && quantity.MilliValue()%1000 != 0 {
			w.warn(at.Key(string(name)), "%s is not a whole number of bytes", quantity.String())
		}
	}
}

// duplicateEnv warns about variables that hide an earlier definition without referring to it.
func (w *warner) duplicateEnv(c *corev1.Container, at *field.Path) {
	defined := sets.Set[string]{}
	for i, e := range c.Env {
		reference := "$(" + e.Name + ")"
		adds := e.ValueFrom == nil && e.Value != reference && strings.Contains(e.Value, reference)
		if defined.Has(e.Name) && !adds {
			w.warn(at.Child("env").Index(i), "hides the previous definition of %q", e.Name)
		}
		defined.Insert(e.Name)
	}
}

// ports warns about ports that cannot be told apart by number or, in services and probes, by name.
func (w *warner) ports() {
	var before crowd
	names := map[string]*field.Path{}
	eachContainer(w.spec, func(c *corev1.Container, p *field.Path) {
		for i, is := range c.Ports {
			at := below(w.path, p).Child("ports").Index(i)
			if is.HostIP != "" && is.HostPort == 0 {
				w.warn(at, "hostIP has no effect without hostPort")
			}
			if w.enough() {
				return
			}
			for _, was := range before.near(&is) {
				if overlap := overlap(&is, was.ContainerPort); overlap != "" {
					w.warn(at, "%s %s", overlap, was.at)
				}
			}
			before.add(&is, at)
			if is.Name == "" {
				continue
			}
			if other, taken := names[is.Name]; taken {
				w.warn(at, "duplicate port name %q: services and probes use %s", is.Name, other)
			} else {
				names[is.Name] = at
			}
		}
	})
}

// crowd is the ports of a pod, found by what they may have in common.
type crowd struct {
	ports []crowdedPort
	by    map[common][]int
}

type crowdedPort struct {
	*corev1.ContainerPort
	at *field.Path
}

// common is what ports have in common: the number, and perhaps the port of the host, and perhaps
// its address too.
type common struct {
	number   int32
	protocol corev1.Protocol
	shared   int // how many of the following count
	hostPort int32
	hostIP   string
}

func commonOf(p *corev1.ContainerPort, shared int, hostPort int32, hostIP string) common {
	return common{p.ContainerPort, p.Protocol, shared, hostPort, hostIP}
}

func (c *crowd) add(p *corev1.ContainerPort, at *field.Path) {
	if c.by == nil {
		c.by = map[common][]int{}
	}
	for _, key := range []common{
		commonOf(p, 0, 0, ""), commonOf(p, 1, p.HostPort, ""), commonOf(p, 2, p.HostPort, p.HostIP),
	} {
		c.by[key] = append(c.by[key], len(c.ports))
	}
	c.ports = append(c.ports, crowdedPort{p, at})
}

// near returns the ports that overlap with p, in order.
func (c *crowd) near(p *corev1.ContainerPort) []crowdedPort {
	var found []int
	switch {
	case p.HostPort == 0:
		found = c.by[commonOf(p, 0, 0, "")]
	case p.HostIP == "":
		found = slices.Concat(c.by[commonOf(p, 1, 0, "")], c.by[commonOf(p, 1, p.HostPort, "")])
	default:
		found = slices.Concat(c.by[commonOf(p, 1, 0, "")], c.by[commonOf(p, 2, p.HostPort, "")],
			c.by[commonOf(p, 2, p.HostPort, p.HostIP)])
	}
	slices.Sort(found)
	near := make([]crowdedPort, 0, len(found))
	for _, i := range found {
		near = append(near, c.ports[i])
	}
	return near
}

// overlap describes the conflict between two ports with the same number, if there is one.
func overlap(p, other *corev1.ContainerPort) string {
	switch {
	case p.ContainerPort != other.ContainerPort || p.Protocol != other.Protocol:
		return ""
	case p.HostIP == other.HostIP && p.HostPort == other.HostPort:
		return "duplicates"
	case p.HostPort == 0 || other.HostPort == 0:
		return "overlaps with"
	case p.HostPort == other.HostPort && (p.HostIP == "") != (other.HostIP == ""):
		return "may conflict with"
	}
	return ""
}
