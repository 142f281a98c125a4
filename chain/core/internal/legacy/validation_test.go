package legacy

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// through returns the context of a request to an API group.
func through(t *testing.T, group string) context.Context {
	return genericapirequest.WithRequestInfo(t.Context(),
		&genericapirequest.RequestInfo{APIGroup: group, APIVersion: "v1"})
}

func TestValidation(t *testing.T) {
	t.Parallel()
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    amounts("storage", "1Gi"),
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h"},
				},
			},
		}
		defaultPersistentVolume(v)
		change(v)
		return v
	}
	same := func(*corev1.PersistentVolume) {}
	onNode := func(label, value string) *corev1.PersistentVolume {
		return volume(func(v *corev1.PersistentVolume) {
			zone := corev1.NodeSelectorRequirement{
				Key:      label,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{value},
			}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}}},
			}
		})
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: amounts("storage", "2Gi")},
		}}
		claims.DefaultSpec(&c.Spec)
		change(c)
		return c
	}
	attributes := func(c *corev1.PersistentVolumeClaim, class string) *corev1.PersistentVolumeClaim {
		c.Spec.VolumeAttributesClassName = &class
		return c
	}
	bound := func(size string) *corev1.PersistentVolumeClaim {
		return claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = amounts("storage", size)
			c.Status = corev1.PersistentVolumeClaimStatus{
				Phase:    corev1.ClaimBound,
				Capacity: amounts("storage", "1Gi"),
			}
		})
	}
	event := func(change func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "ns"},
			InvolvedObject: corev1.ObjectReference{Namespace: "ns"},
			EventTime:      metav1.NewMicroTime(time.Unix(1, 0)), Type: corev1.EventTypeNormal,
			ReportingController: "c", ReportingInstance: "i", Action: "a", Reason: "r",
		}
		change(e)
		return e
	}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "p://1"}}
		change(n)
		defaultNode(n)
		return n
	}
	ctx := t.Context()

	for name, test := range map[string]struct {
		errs field.ErrorList
		want []string
	}{
		"volume": {errs: validatePersistentVolume(volume(same), nil)},
		"local volume without node": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
					Local: &corev1.LocalVolumeSource{Path: "/a/../b"},
				}
			}), nil),
			want: []string{"spec.local.path Invalid", "spec.nodeAffinity Required"},
		},
		"volume that takes no mount options": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Annotations = map[string]string{mountOptionsAnnotation: "ro"}
			}), nil),
			want: []string{"metadata.annotations.volume.beta.kubernetes.io/mount-options Forbidden"},
		},
		"volume that takes mount options": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Annotations = map[string]string{mountOptionsAnnotation: "ro"}
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
					NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"},
				}
			}), nil),
		},
		"volume of old sources": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
					GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{},
					CephFS:            &corev1.CephFSPersistentVolumeSource{},
				}
			}), nil),
			want: []string{"spec.cephFS Forbidden", "spec.persistentDisk.pdName Required"},
		},
		"volume without driver": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Spec.CSI.Driver = ""
			}), nil),
			want: []string{"spec.csi.driver Required"},
		},
		"volume without source": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Spec.CSI = nil
			}), nil),
			want: []string{"spec Required"},
		},
		"recycled root": {
			errs: validatePersistentVolume(volume(func(v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/."},
				}
				v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
			}), nil),
			want: []string{"spec.persistentVolumeReclaimPolicy Forbidden"},
		},
		"volume gets an expansion secret": {
			errs: validatePersistentVolumeUpdate(ctx, volume(func(v *corev1.PersistentVolume) {
				v.Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Name: "s", Namespace: "ns"}
			}), volume(same)),
		},
		"volume moved": {
			errs: validatePersistentVolumeUpdate(ctx, volume(func(v *corev1.PersistentVolume) {
				v.Spec.CSI.VolumeHandle = "other"
			}), volume(same)),
			want: []string{"spec.persistentvolumesource Forbidden"},
		},
		"volume on an impossible node": {
			errs: validatePersistentVolume(onNode("zone", "not a value"), nil),
			want: []string{
				"spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0] Invalid",
			},
		},
		"volume that is on an impossible node": {errs: validatePersistentVolumeUpdate(ctx,
			onNode("zone", "not a value"), onNode("zone", "not a value"))},
		"volume's zone gets its new label": {
			errs: validatePersistentVolumeUpdate(ctx, onNode(corev1.LabelTopologyZone, "a"),
				onNode(corev1.LabelFailureDomainBetaZone, "a")),
		},
		"volume's zone changes": {
			errs: validatePersistentVolumeUpdate(ctx, onNode("zone", "b"), onNode("zone", "a")),
			want: []string{"nodeAffinity Invalid"},
		},
		"bound claim without a size": {
			errs: validateClaimUpdate(ctx, claim(func(c *corev1.PersistentVolumeClaim) {
				c.Status.Phase, c.Spec.Resources.Requests = corev1.ClaimBound, corev1.ResourceList{}
			}), bound("2Gi")),
			want: []string{"spec.resources.requests.storage Forbidden", "spec.resources[storage] Required"},
		},
		"claim grows": {errs: validateClaimUpdate(ctx, bound("3Gi"), bound("2Gi"))},
		"claim's attributes change": {
			errs: validateClaimUpdate(ctx, attributes(bound("2Gi"), "b"), attributes(bound("2Gi"), "a")),
		},
		"unbound claim's attributes change": {
			errs: validateClaimUpdate(ctx, attributes(claim(func(*corev1.PersistentVolumeClaim) {}), "b"),
				attributes(claim(func(*corev1.PersistentVolumeClaim) {}), "a")),
			want: []string{"spec Forbidden"},
		},
		"claim's attributes go": {
			errs: validateClaimUpdate(ctx, bound("2Gi"), func() *corev1.PersistentVolumeClaim {
				c := attributes(bound("2Gi"), "a")
				c.Status.CurrentVolumeAttributesClassName = new("a")
				return c
			}()),
			want: []string{"spec.volumeAttributesClassName Forbidden"},
		},
		"claim shrinks above its capacity": {errs: validateClaimUpdate(ctx, bound("2Gi"), bound("3Gi"))},
		"claim shrinks to its capacity": {
			errs: validateClaimUpdate(ctx, bound("1Gi"), bound("3Gi")),
			want: []string{"spec.resources.requests.storage Forbidden"},
		},
		"claim changes mode": {
			errs: validateClaimUpdate(ctx, claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
			}), bound("2Gi")),
			want: []string{"spec Forbidden", "volumeMode Invalid"},
		},
		"claim gets a class": {
			errs: validateClaimUpdate(ctx, claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.StorageClassName = new("fast")
			}), claim(func(*corev1.PersistentVolumeClaim) {})),
		},
		"claim changes its annotated class": {
			errs: validateClaimUpdate(ctx, claim(func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "b"}
			}), claim(func(*corev1.PersistentVolumeClaim) {})),
			want: []string{"metadata.annotations.volume.beta.kubernetes.io/storage-class Invalid"},
		},
		"claim from two sources": {
			errs: claims.ValidateSpec(&claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "Secret", Name: "b"}
			}).Spec, field.NewPath("spec"), claims.Options{}),
			want: []string{"spec Invalid", "spec.dataSourceRef Invalid"},
		},
		"event": {errs: validateEvent(through(t, "events.k8s.io"), event(func(*corev1.Event) {}))},
		"event of old style through core": {
			errs: validateEvent(through(t, ""), event(func(e *corev1.Event) {
				e.EventTime, e.Action = metav1.MicroTime{}, ""
			})),
		},
		"event of old style through events.k8s.io": {
			errs: validateEvent(through(t, "events.k8s.io"), event(func(e *corev1.Event) {
				e.EventTime, e.Count = metav1.MicroTime{}, 1
			})),
			want: []string{"count Invalid", "eventTime Required"},
		},
		"event with a finalizer of nobody's, through core": {
			errs: validateEvent(through(t, ""), event(func(e *corev1.Event) {
				e.Name, e.Finalizers = "", []string{"f"}
			})),
		},
		"event with a finalizer of nobody's, through events.k8s.io": {
			errs: validateEvent(through(t, "events.k8s.io"), event(func(e *corev1.Event) {
				e.Name, e.Finalizers = "", []string{"f"}
			})),
			want: []string{"metadata.finalizers[0] Invalid", "metadata.name Required"},
		},
		"new event without a controller, through core": {
			errs: validateEvent(through(t, ""), event(func(e *corev1.Event) { e.ReportingController = "" })),
			want: []string{"reportingComponent Invalid", "reportingComponent Required"},
		},
		"event changed through core": {
			errs: validateEventUpdate(through(t, ""), event(func(e *corev1.Event) { e.Message = "m" }),
				event(func(*corev1.Event) {})),
		},
		"node gets more": {
			errs: validateNodeUpdate(ctx, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
				node(func(*corev1.Node) {})),
		},
		"node moved": {
			errs: validateNodeUpdate(ctx, node(func(n *corev1.Node) {
				n.Spec.ProviderID, n.Spec.PodCIDRs = "p://2", []string{"10.0.1.0/24"}
			}), node(func(*corev1.Node) {})),
			want: []string{"spec.podCIDRs Forbidden", "spec.providerID Invalid"},
		},
		"node of two IPv4 ranges": {
			errs: validateNode(ctx, node(func(n *corev1.Node) {
				n.Spec.PodCIDRs = []string{"10.0.0.0/24", "10.0.1.0/24"}
			})),
			want: []string{"spec.podCIDRs Invalid"},
		},
		"node of something that is not a range": {
			errs: validateNode(ctx, node(func(n *corev1.Node) {
				n.Spec.PodCIDRs = []string{"10.0.0.0/24", "x"}
			})),
			want: []string{
				"spec.podCIDRs InternalError", "spec.podCIDRs Invalid", "spec.podCIDRs[1] Invalid",
			},
		},
		"features of a node": {
			errs: validateNodeUpdate(ctx, node(func(n *corev1.Node) {
				n.Status.DeclaredFeatures = []string{"B/a", "A", "A", "c"}
			}), node(func(*corev1.Node) {})),
			want: []string{
				"status.declaredFeatures[1] Invalid", "status.declaredFeatures[2] Duplicate",
				"status.declaredFeatures[3] Invalid",
			},
		},
		"taints in an annotation": {
			errs: validateNode(ctx, node(func(n *corev1.Node) {
				n.Annotations = map[string]string{taintsAnnotation: `[{"key":"a b"}]`}
			})),
			want: []string{
				"metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect Required",
				"metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].key Invalid",
			},
		},
		"taint twice": {
			errs: validateNode(ctx, node(func(n *corev1.Node) {
				taint := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}
				n.Spec.Taints = []corev1.Taint{taint, taint, {Key: "k"}}
			})),
			want: []string{"metadata.taints[1] Duplicate", "metadata.taints[2].effect Required"},
		},
		"quota selector": {
			errs: validateQuotaSpec(&corev1.ResourceQuotaSpec{
				Hard: amounts("pods", "1"),
				ScopeSelector: &corev1.ScopeSelector{
					MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
						{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpIn},
						{
							ScopeName: corev1.ResourceQuotaScopePriorityClass,
							Operator:  corev1.ScopeSelectorOpExists,
							Values:    []string{"x"},
						},
					},
				},
			}),
			want: []string{
				"spec.scopeSelector.matchExpressions.operator Invalid",
				"spec.scopeSelector.matchExpressions.values Invalid",
				"spec.scopeSelector.matchExpressions.values Required",
			},
		},
		"limits out of order": {
			errs: validateLimits(&corev1.LimitRangeItem{
				Type:                 corev1.LimitTypeContainer,
				Min:                  amounts("cpu", "2"),
				Max:                  amounts("cpu", "1"),
				MaxLimitRequestRatio: amounts("cpu", "3"),
			}, field.NewPath("x")),
			want: []string{"x.maxLimitRequestRatio[cpu] Invalid", "x.min[cpu] Invalid"},
		},
		"limits of pods": {
			errs: validateLimits(&corev1.LimitRangeItem{
				Type:    corev1.LimitTypePod,
				Max:     amounts("cpu", "-1"),
				Default: amounts("cpu", "1"),
			}, field.NewPath("x")),
			want: []string{"x.default Forbidden"},
		},
		"docker configuration that is not an object": {
			errs: validateSecret(ctx, &corev1.Secret{
				Type: corev1.SecretTypeDockercfg,
				Data: map[string][]byte{corev1.DockerConfigKey: []byte("[]")},
			}),
			want: []string{"data[.dockercfg] Invalid"},
		},
		"immutable configuration gets an empty list": {
			errs: validateConfigMapUpdate(ctx, &corev1.ConfigMap{
				Immutable:  new(true),
				BinaryData: map[string][]byte{},
			}, &corev1.ConfigMap{Immutable: new(true)}),
			want: []string{"binaryData Forbidden"},
		},
		"secret is immutable": {
			errs: validateSecretUpdate(ctx, &corev1.Secret{},
				&corev1.Secret{Immutable: new(true), Data: map[string][]byte{"k": nil}}),
			want: []string{"data Forbidden", "immutable Forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Clone(test.want)
			slices.Sort(want)
			if got := kindtest.Causes(test.errs); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q:\n%v", got, want, test.errs.ToAggregate())
			}
		})
	}
}

func TestSecretStringData(t *testing.T) {
	t.Parallel()
	s := &corev1.Secret{
		Data:       map[string][]byte{"a": []byte("1"), "b": []byte("1")},
		StringData: map[string]string{"b": "2"},
	}
	defaultSecret(s)
	if string(s.Data["a"]) != "1" || string(s.Data["b"]) != "2" || s.StringData != nil {
		t.Errorf("data %v, stringData %v", s.Data, s.StringData)
	}
}

func TestSecretReferences(t *testing.T) {
	t.Parallel()
	a := &corev1.ServiceAccount{
		Secrets: []corev1.ObjectReference{{Name: "s", Namespace: "other", Kind: "K"}},
	}
	keepSecretNames(a)
	if a.Secrets[0] != (corev1.ObjectReference{Name: "s"}) {
		t.Errorf("got %v", a.Secrets)
	}
}

// TestPhaseTransitionTime checks that lastPhaseTransitionTime is when the phase of a volume last
// changed, unless the client sets it.
func TestPhaseTransitionTime(t *testing.T) {
	t.Parallel()
	k := PersistentVolumes()
	then, said := metav1.Unix(1, 0), metav1.Unix(2, 0)
	volume := func(phase corev1.PersistentVolumePhase, at *metav1.Time) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Status: corev1.PersistentVolumeStatus{Phase: phase, LastPhaseTransitionTime: at},
		}
	}
	old := volume(corev1.VolumeAvailable, &then)
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   func(metav1.Time) bool
	}{
		"same phase": {volume(corev1.VolumeAvailable, nil), func(at metav1.Time) bool {
			return at.Equal(&then)
		}},
		"same phase, said": {volume(corev1.VolumeAvailable, &said), func(at metav1.Time) bool {
			return at.Equal(&said)
		}},
		"other phase": {volume(corev1.VolumeBound, &then), func(at metav1.Time) bool {
			return time.Since(at.Time) < time.Hour
		}},
		"other phase, said": {volume(corev1.VolumeBound, &said), func(at metav1.Time) bool {
			return at.Equal(&said)
		}},
		"other phase, not said": {volume(corev1.VolumeBound, nil), func(at metav1.Time) bool {
			return time.Since(at.Time) < time.Hour
		}},
	} {
		k.Status.Prepare(t.Context(), test.volume, old)
		if at := test.volume.Status.LastPhaseTransitionTime; at == nil || !test.want(*at) {
			t.Errorf("%s: %v", name, at)
		}
	}
}
