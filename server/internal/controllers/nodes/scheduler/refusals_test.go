package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
)

// refusal is a pod that fits on none of some nodes, and what kube-scheduler 1.37.2 said of it.
type refusal struct {
	nodes   []*corev1.Node
	objects []runtime.Object
	pods    []*corev1.Pod // on the first node
	pod     *corev1.Pod
	want    string
	preempt string // after "preemption: "; empty if kube-scheduler said "not found" instead
}

// TestRefusals has what kube-scheduler 1.37.2 was seen to say.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const (
		driver    = "csi.example.com"
		unhelpful = "Preemption is not helpful for scheduling"
		nobody    = "No preemption victims found for incoming pod"
		zone      = corev1.LabelTopologyZone
	)
	node, pod := refusalNode, refusalPod
	one := []*corev1.Node{node()}
	ebs := func(id string) func(*corev1.Pod) {
		return refusalVolume(corev1.VolumeSource{
			AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id},
		})
	}
	gce := func(readOnly bool) func(*corev1.Pod) {
		disk := &corev1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: readOnly}
		return refusalVolume(corev1.VolumeSource{GCEPersistentDisk: disk})
	}
	rbd := func(monitors ...string) func(*corev1.Pod) {
		return refusalVolume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{
			CephMonitors: monitors, RBDImage: "i",
		}})
	}
	iscsi := refusalVolume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: "q"}})
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "e",
			VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	}
	uses := func(claims ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, c := range claims {
				source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}
				refusalVolume(corev1.VolumeSource{PersistentVolumeClaim: source})(p)
			}
		}
	}
	named := func(names ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			term := corev1.NodeSelectorTerm{}
			for _, name := range names {
				term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
				})
			}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
				},
			}}
		}
	}
	restarts := func(p *corev1.Pod) {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		}}
	}
	late := refusalClass("late", driver, storagev1.VolumeBindingWaitForFirstConsumer)
	local := refusalClass("local", noProvisioner, storagev1.VolumeBindingWaitForFirstConsumer)
	claim, bound := refusalClaim, refusalBound
	csi := func(name string) *corev1.PersistentVolume {
		return refusalPV(name, func(v *corev1.PersistentVolume) {
			v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
		})
	}
	limited := func(driver string, count int32) *storagev1.CSINode {
		return &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: "node-0"},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &count},
			}}},
		}
	}
	insists := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec:       storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)},
	}
	counts := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec:       storagev1.CSIDriverSpec{StorageCapacity: new(true)},
	}
	small := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, StorageClassName: "late",
		NodeTopology: &metav1.LabelSelector{}, Capacity: resource.NewQuantity(1, resource.BinarySI),
	}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "node-0",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v1")},
		},
	}
	for name, test := range map[string]refusal{
		"selector": {
			nodes: one, want: "1 node(s) didn't match Pod's node affinity/selector",
			pod:     pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "where"} }),
			preempt: "1 " + unhelpful,
		},
		"name": {
			nodes: one, pod: pod(named("other")), preempt: "1 " + unhelpful,
			want: "1 node(s) didn't satisfy plugin(s) [NodeAffinity]",
		},
		"two names": {nodes: one, pod: pod(named("a", "b")), want: "pod affinity terms conflict"},
		"taint, cordon and room": {
			nodes: []*corev1.Node{
				node(func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}
				}),
				node(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
				node(),
			},
			pod: pod(refusalRequest(corev1.ResourceCPU, "100")),
			want: "1 Insufficient cpu, 1 node(s) had untolerated taint(s), " +
				"1 node(s) were unschedulable",
			preempt: "3 " + unhelpful,
		},
		"pods and a resource": {
			nodes: []*corev1.Node{node(func(n *corev1.Node) {
				n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1")
			})},
			pods: []*corev1.Pod{pod()}, pod: pod(refusalRequest(corev1.ResourceMemory, "1Ti")),
			want:    "1 Insufficient memory, 1 Too many pods",
			preempt: "1 " + unhelpful,
		},
		"features": {
			nodes: one, pod: pod(restarts), preempt: "1 " + unhelpful,
			want: "1 node(s) didn't match Pod's required features",
		},
		"no claim": {
			nodes: one, pod: pod(uses("none")), want: `persistentvolumeclaim "none" not found`,
		},
		"no claim of two": {
			nodes: one, pod: pod(uses("c", "none")), objects: []runtime.Object{claim("c", "no-class")},
			want: `persistentvolumeclaim "none" not found`,
		},
		"ephemeral volume without a claim": {
			nodes: one, pod: pod(ephemeral), want: "waiting for ephemeral volume controller to create " +
				`the persistentvolumeclaim "p-e"`,
		},
		"ephemeral volume and no claim": {
			nodes: one, pod: pod(ephemeral, uses("none")),
			want: `persistentvolumeclaim "none" not found`,
		},
		"claim without a class": {
			nodes: one, pod: pod(uses("c")), objects: []runtime.Object{claim("c", "no-class")},
			want: "pod has unbound immediate PersistentVolumeClaims",
		},
		"lost claim": {
			nodes: one, pod: pod(uses("c")),
			objects: []runtime.Object{bound("c", "v", func(c *corev1.PersistentVolumeClaim) {
				c.Status.Phase = corev1.ClaimLost
			})},
			want: `persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`,
		},
		"no volume": {
			nodes: one, pod: pod(uses("c")), objects: []runtime.Object{bound("c", "v")},
			want: `persistentvolume "v" not found`,
		},
		"volume elsewhere, and none to bind": {
			nodes: one, pod: pod(uses("c", "d")),
			objects: []runtime.Object{
				local, bound("c", "v"), claim("d", "local"),
				refusalPV("v", func(v *corev1.PersistentVolume) {
					v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{
							MatchExpressions: []corev1.NodeSelectorRequirement{{
								Key: "no", Operator: corev1.NodeSelectorOpExists,
							}},
						}},
					}}
				}),
			},
			want: "1 node(s) didn't find available persistent volumes to bind, " +
				"1 node(s) didn't match PersistentVolume's node affinity",
			preempt: "1 " + unhelpful,
		},
		"zone": {
			nodes: []*corev1.Node{node(func(n *corev1.Node) { n.Labels[zone] = "b" })},
			pod:   pod(uses("c")), preempt: "1 " + unhelpful,
			objects: []runtime.Object{bound("c", "v"), refusalPV("v", func(v *corev1.PersistentVolume) {
				v.Labels = map[string]string{zone: "a__c"}
			})},
			want: "1 node(s) had no available volume zone",
		},
		"region without a zone": {
			nodes: []*corev1.Node{node(func(n *corev1.Node) {
				delete(n.Labels, zone)
				n.Labels[corev1.LabelTopologyRegion] = "r"
			})},
			pod: pod(uses("c")), preempt: "1 " + unhelpful,
			objects: []runtime.Object{bound("c", "v"), refusalPV("v", func(v *corev1.PersistentVolume) {
				v.Labels = map[string]string{zone: "a"}
			})},
			want: "1 node(s) had no available volume zone",
		},
		"claim for one pod": {
			nodes: one, pods: []*corev1.Pod{pod(uses("c"))}, pod: pod(uses("c")),
			objects: []runtime.Object{refusalPV("v"), bound("c", "v",
				func(c *corev1.PersistentVolumeClaim) {
					c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
				})},
			want: "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode " +
				"already in-use by another pod",
			preempt: "1 " + nobody,
		},
		"EBS disk": {
			nodes: one, pods: []*corev1.Pod{pod(ebs("x"))}, pod: pod(ebs("x")),
			want: "1 node(s) had no available disk", preempt: "1 " + nobody,
		},
		"GCE disk": {
			nodes: one, pods: []*corev1.Pod{pod(gce(true))}, pod: pod(gce(false)),
			want: "1 node(s) had no available disk", preempt: "1 " + nobody,
		},
		"iSCSI disk": {
			nodes: one, pods: []*corev1.Pod{pod(iscsi)}, pod: pod(iscsi),
			want: "1 node(s) had no available disk", preempt: "1 " + nobody,
		},
		"RBD disk": {
			nodes: one, pods: []*corev1.Pod{pod(rbd("m", "n"))}, pod: pod(rbd("n")),
			want: "1 node(s) had no available disk", preempt: "1 " + nobody,
		},
		"limit": {
			nodes: one, pods: []*corev1.Pod{pod(uses("c1"))}, pod: pod(uses("c2")),
			objects: []runtime.Object{
				csi("v1"), csi("v2"), bound("c1", "v1"), bound("c2", "v2"), limited(driver, 1),
			},
			want: "1 node(s) exceed max volume count", preempt: "1 " + nobody,
		},
		"limit for volumes that are to be made": {
			nodes: one, pod: pod(uses("c1", "c2")),
			objects: []runtime.Object{
				late, claim("c1", "late"), claim("c2", "late"), limited(driver, 1),
			},
			want: "1 node(s) exceed max volume count", preempt: "1 " + nobody,
		},
		"limit and an attachment": {
			nodes: one, pod: pod(uses("c2")),
			objects: []runtime.Object{
				csi("v1"), csi("v2"), bound("c2", "v2"), attachment, limited(driver, 1),
			},
			want: "1 node(s) exceed max volume count", preempt: "1 " + nobody,
		},
		"limit for a moved plugin": {
			nodes: one, pods: []*corev1.Pod{pod(ebs("x"))}, pod: pod(ebs("y")),
			objects: []runtime.Object{limited("ebs.csi.aws.com", 1)},
			want:    "1 node(s) exceed max volume count", preempt: "1 " + nobody,
		},
		"no driver": {
			nodes: one, pod: pod(uses("c")), preempt: "1 " + nobody,
			objects: []runtime.Object{insists, csi("v"), bound("c", "v")},
			want:    "1 csi.example.com CSI driver is not installed on the node",
		},
		"no driver to make a volume": {
			nodes: one, pod: pod(uses("c")), preempt: "1 " + nobody,
			objects: []runtime.Object{insists, late, claim("c", "late"), limited("other", 1)},
			want:    "1 csi.example.com CSI driver is not installed on the node",
		},
		"no capacity": {
			nodes: one, pod: pod(uses("c")), preempt: "1 " + unhelpful,
			objects: []runtime.Object{counts, late, claim("c", "late")},
			want:    "1 node(s) did not have enough free storage",
		},
		"too little capacity": {
			nodes: one, pod: pod(uses("c")), preempt: "1 " + unhelpful,
			objects: []runtime.Object{counts, small, late, claim("c", "late")},
			want:    "1 node(s) did not have enough free storage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, f, why := test.try(t)
			if n != nil {
				t.Fatalf("the pod fits on %s", n.name)
			}
			if want := unavailable(len(test.nodes)) + ": " + test.want + "."; f.Error() != want {
				t.Errorf("got  %s\nwant %s", f, want)
			}
			if f.early != (test.preempt == "") {
				t.Errorf("said before the claims of devices are looked at: %t", f.early)
			}
			want := unavailable(len(test.nodes)) + ": " + test.preempt + "."
			if !f.early && why != want {
				t.Errorf("got  preemption: %s\nwant preemption: %s", why, want)
			}
		})
	}
	for name, test := range map[string]refusal{
		"read-only disk": {nodes: one, pods: []*corev1.Pod{pod(gce(true))}, pod: pod(gce(true))},
		"other disk":     {nodes: one, pods: []*corev1.Pod{pod(ebs("x"))}, pod: pod(ebs("y"))},
		"other monitors": {nodes: one, pods: []*corev1.Pod{pod(rbd("m"))}, pod: pod(rbd("n"))},
		"volume of a pod that is there": {
			nodes: one, pods: []*corev1.Pod{pod(uses("c"))}, pod: pod(uses("c")),
			objects: []runtime.Object{csi("v"), bound("c", "v"), limited(driver, 1)},
		},
		"limit of another driver": {
			nodes: one, pod: pod(uses("c")),
			objects: []runtime.Object{csi("v"), bound("c", "v"), limited("other", 0)},
		},
		"driver": {
			nodes: one, pod: pod(uses("c")),
			objects: []runtime.Object{insists, csi("v"), bound("c", "v"), limited(driver, 1)},
		},
		"declared features": {
			nodes: []*corev1.Node{node(func(n *corev1.Node) {
				n.Status.DeclaredFeatures = []string{"A", "RestartAllContainersOnContainerExits"}
			})},
			pod: pod(restarts),
		},
	} {
		t.Run("fits: "+name, func(t *testing.T) {
			t.Parallel()
			if n, f, _ := test.try(t); n == nil {
				t.Error(f)
			}
		})
	}
}

// try returns the node for the pod, or why there is none and why no pods are evicted.
func (r refusal) try(t *testing.T) (n *node, f *failure, why string) {
	t.Helper()
	a := r.attempt(t)
	n, f = a.find()
	if n == nil && !f.early {
		_, why = a.preempt(f, nil)
	}
	return n, f, why
}

func (r refusal) attempt(t *testing.T) *attempt {
	t.Helper()
	c := newCluster()
	for i, n := range r.nodes {
		n = n.DeepCopy()
		n.Name = fmt.Sprint("node-", i)
		c.setNode(n)
	}
	for i, p := range r.pods {
		p = p.DeepCopy()
		p.Name, p.UID = fmt.Sprint("other-", i), types.UID(fmt.Sprint("other-", i))
		c.put(newPod(p), "node-0", false)
	}
	w, err := newWishes(r.pod)
	if err != nil {
		t.Fatal(err)
	}
	return &attempt{
		pod: newPod(r.pod), wishes: w, cluster: c, volumes: refusalListers(t, r.objects),
		namespaces: func(string) labels.Set { return nil },
	}
}

func refusalListers(t *testing.T, objects []runtime.Object) *volumes {
	t.Helper()
	indexers := map[string]cache.Indexer{}
	of := func(example runtime.Object) cache.Indexer {
		kind := fmt.Sprintf("%T", example)
		if indexers[kind] == nil {
			indexers[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		return indexers[kind]
	}
	for _, o := range objects {
		if err := of(o).Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return &volumes{
		claims:      corelisters.NewPersistentVolumeClaimLister(of(&corev1.PersistentVolumeClaim{})),
		volumes:     corelisters.NewPersistentVolumeLister(of(&corev1.PersistentVolume{})),
		classes:     storagelisters.NewStorageClassLister(of(&storagev1.StorageClass{})),
		drivers:     storagelisters.NewCSIDriverLister(of(&storagev1.CSIDriver{})),
		nodes:       storagelisters.NewCSINodeLister(of(&storagev1.CSINode{})),
		capacities:  storagelisters.NewCSIStorageCapacityLister(of(&storagev1.CSIStorageCapacity{})),
		attachments: storagelisters.NewVolumeAttachmentLister(of(&storagev1.VolumeAttachment{})),
	}
}

func refusalNode(set ...func(*corev1.Node)) *corev1.Node {
	n := benchmarkNode(0)
	for _, set := range set {
		set(n)
	}
	return n
}

func refusalPod(set ...func(*corev1.Pod)) *corev1.Pod {
	p := benchmarkPod(0)
	p.Name = "p"
	for _, set := range set {
		set(p)
	}
	return p
}

func refusalRequest(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
	}
}

func refusalVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
			Name: fmt.Sprint("v", len(p.Spec.Volumes)), VolumeSource: source,
		})
	}
}

func refusalClass(
	name, provisioner string, mode storagev1.VolumeBindingMode,
) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}
}

func refusalClaim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi"),
			}},
		},
	}
}

func refusalBound(
	name, to string, set ...func(*corev1.PersistentVolumeClaim),
) *corev1.PersistentVolumeClaim {
	c := refusalClaim(name, "")
	c.Spec.VolumeName, c.Status.Phase = to, corev1.ClaimBound
	c.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	for _, set := range set {
		set(c)
	}
	return c
}

func refusalPV(name string, set ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, set := range set {
		set(v)
	}
	return v
}
