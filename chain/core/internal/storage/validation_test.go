package storage

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestValidation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	topology := func(keys ...string) corev1.TopologySelectorTerm {
		var term corev1.TopologySelectorTerm
		for _, key := range keys {
			term.MatchLabelExpressions = append(term.MatchLabelExpressions,
				corev1.TopologySelectorLabelRequirement{Key: key, Values: []string{"v"}})
		}
		return term
	}
	attachment := func(source storagev1.VolumeAttachmentSource) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "d.example.com", NodeName: "n", Source: source},
		}
	}
	oddAttachment := attachment(storagev1.VolumeAttachmentSource{
		PersistentVolumeName: new("Not a name"),
	})
	oddAttachment.Spec.Attacher = "not a driver"
	csi := corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h"},
	}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}

	for name, test := range map[string]struct {
		errs field.ErrorList
		want []string
	}{
		"token requests": {
			errs: validateCSIDriver(ctx, &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
				TokenRequests: []storagev1.TokenRequest{
					{Audience: "a"}, {Audience: "b", ExpirationSeconds: new(int64(1))},
					{Audience: "a", ExpirationSeconds: new(int64(1))},
				},
				NodeAllocatableUpdatePeriodSeconds: new(int64(9)),
			}}),
			want: []string{
				"spec.nodeAllocatableUpdatePeriodSeconds Invalid",
				"spec.tokenRequests[1].expirationSeconds Invalid", "spec.tokenRequests[2].audience Duplicate",
			},
		},
		"same topology twice": {
			errs: validateTopologies([]corev1.TopologySelectorTerm{
				topology("a", "b"), topology("b", "a"), topology("c", "c"),
			}, field.NewPath("t")),
			want: []string{
				"t[1].matchLabelExpressions Duplicate", "t[2].matchLabelExpressions[1].key Duplicate",
			},
		},
		"topology of everything": {
			errs: validateTopologies([]corev1.TopologySelectorTerm{{}}, field.NewPath("t")),
			want: []string{"t[0].matchLabelExpressions Duplicate"},
		},
		"inline volume": {
			errs: validateAttachment(attachment(storagev1.VolumeAttachmentSource{
				InlineVolumeSpec: &corev1.PersistentVolumeSpec{AccessModes: modes, PersistentVolumeSource: csi},
			})),
		},
		"inline volume of a class": {
			errs: validateAttachment(attachment(storagev1.VolumeAttachmentSource{
				InlineVolumeSpec: &corev1.PersistentVolumeSpec{
					AccessModes:            modes,
					PersistentVolumeSource: csi,
					StorageClassName:       "c",
				},
			})),
			want: []string{"spec.source.inlineVolumeSpec.storageClassName Forbidden"},
		},
		"inline local volume": {
			errs: validateAttachment(attachment(storagev1.VolumeAttachmentSource{
				InlineVolumeSpec: &corev1.PersistentVolumeSpec{
					AccessModes: modes,
					PersistentVolumeSource: corev1.PersistentVolumeSource{
						Local: &corev1.LocalVolumeSource{Path: "/a"},
					},
				},
			})),
			want: []string{
				"spec.source.inlineVolumeSpec.csi Required",
				"spec.source.inlineVolumeSpec.nodeAffinity Required",
			},
		},
		"no attacher": {
			errs: validateAttachment(&storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
				NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}}}),
			want: []string{"spec.attacher Required"},
		},
		"attachment of an odd name": {
			errs: validateAttachment(oddAttachment),
			want: []string{"spec.attacher Invalid", "spec.source.persistentVolumeName Invalid"},
		},
		"attachment of another name": {
			errs: validateAttachmentUpdate(ctx,
				attachment(storagev1.VolumeAttachmentSource{PersistentVolumeName: new("")}), oddAttachment),
			want: []string{
				"spec Invalid", "spec.source.persistentVolumeName Invalid",
				"spec.source.persistentVolumeName Required",
			},
		},
		"topology key without a name": {
			errs: validateCSINode(ctx, &storagev1.CSINode{Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: "d", NodeID: "1", TopologyKeys: []string{""}}},
			}}),
			want: []string{"spec.drivers[0] Invalid", "spec.drivers[0] Required"},
		},
		"node's driver moved": {
			errs: validateCSINodeUpdate(ctx, &storagev1.CSINode{
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d", NodeID: "2"}}},
			},
				&storagev1.CSINode{
					Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d", NodeID: "1"}}},
				}),
			want: []string{"spec.drivers Invalid"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := kindtest.Causes(test.errs); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q:\n%v", got, test.want, test.errs.ToAggregate())
			}
		})
	}
}

// TestTokenWarnings checks that a driver whose token requests are new or changed gets a warning.
func TestTokenWarnings(t *testing.T) {
	t.Parallel()
	k := CSIDrivers()
	driver := func(inSecrets *bool, audiences ...string) *storagev1.CSIDriver {
		d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{ServiceAccountTokenInSecrets: inSecrets}}
		for _, a := range audiences {
			d.Spec.TokenRequests = append(d.Spec.TokenRequests, storagev1.TokenRequest{Audience: a})
		}
		return d
	}
	for name, test := range map[string]struct {
		driver, old *storagev1.CSIDriver
		want        int
	}{
		"no tokens":       {driver(nil), nil, 0},
		"tokens":          {driver(nil, "a"), nil, 1},
		"other tokens":    {driver(nil, "b"), driver(nil, "a"), 1},
		"the same tokens": {driver(nil, "a"), driver(nil, "a"), 0},
		"a choice":        {driver(new(bool), "a"), nil, 0},
	} {
		if got := k.Warnings(t.Context(), test.driver, test.old); len(got) != test.want {
			t.Errorf("%s: %q, want %d", name, got, test.want)
		}
	}
}

// Each of many topologies that are all the same is a duplicate, not of each of the others.
func TestManyTopologies(t *testing.T) {
	t.Parallel()
	terms := make([]corev1.TopologySelectorTerm, 1000)
	for i := range terms {
		terms[i].MatchLabelExpressions = []corev1.TopologySelectorLabelRequirement{{
			Key: "zone", Values: []string{"a", "b"},
		}}
	}
	if errs := validateTopologies(terms, nil); len(errs) != len(terms)-1 {
		t.Errorf("%d errors, want %d", len(errs), len(terms)-1)
	}
}
