// Package features declares the feature gates of kube-apiserver, with their history, and has
// constants for those that kinds and control loops ask.
//
// It is for the packages of this module. Its names follow those of Kubernetes and change with them.
package features

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// The gates that kinds and control loops ask. Each comment says what the gate is for, and names its
// KEP if it has one.
const (
	// ClearingNominatedNodeNameAfterBinding clears a pod's nominated node when the pod is bound
	// (KEP-5278).
	ClearingNominatedNodeNameAfterBinding featuregate.Feature = "ClearingNominatedNodeNameAfterBinding"
	// ClusterTrustBundle serves cluster trust bundles, and publishes the server's own certificate
	// (KEP-3257).
	ClusterTrustBundle featuregate.Feature = "ClusterTrustBundle"
	// ClusterTrustBundleProjection lets pods mount cluster trust bundles (KEP-3257).
	ClusterTrustBundleProjection featuregate.Feature = "ClusterTrustBundleProjection"
	// ContainerRestartRules lets containers have restart policies and rules of their own
	// (KEP-5307).
	ContainerRestartRules featuregate.Feature = "ContainerRestartRules"
	// CSIServiceAccountTokenSecrets lets CSI drivers get tokens as secrets (KEP-5538).
	CSIServiceAccountTokenSecrets featuregate.Feature = "CSIServiceAccountTokenSecrets"
	// DeploymentReplicaSetTerminatingReplicas counts terminating pods of deployments and replica
	// sets (KEP-3973).
	DeploymentReplicaSetTerminatingReplicas featuregate.Feature = "DeploymentReplicaSetTerminatingReplicas"
	// DRAConsumableCapacity lets several claims share a device's capacity (KEP-5075).
	DRAConsumableCapacity featuregate.Feature = "DRAConsumableCapacity"
	// DRADeviceBindingConditions binds a pod when its devices are prepared (KEP-5007).
	DRADeviceBindingConditions featuregate.Feature = "DRADeviceBindingConditions"
	// DRADeviceTaintRules taints devices by rules of the administrator (KEP-5055).
	DRADeviceTaintRules featuregate.Feature = "DRADeviceTaintRules"
	// DRADeviceTaints taints devices in resource slices (KEP-5055).
	DRADeviceTaints featuregate.Feature = "DRADeviceTaints"
	// DRAExtendedResource lets pods ask for devices by the names of extended resources (KEP-5004).
	DRAExtendedResource featuregate.Feature = "DRAExtendedResource"
	// DRAPartitionableDevices lets devices consume counters that they share (KEP-4815).
	DRAPartitionableDevices featuregate.Feature = "DRAPartitionableDevices"
	// DRAResourceClaimGranularStatusAuthorization asks for permission for parts of a claim's
	// status (KEP-4817).
	DRAResourceClaimGranularStatusAuthorization featuregate.Feature = "DRAResourceClaimGranularStatusAuthorization"
	// EnvFiles lets containers read environment variables from files (KEP-3721).
	EnvFiles featuregate.Feature = "EnvFiles"
	// HostnameOverride lets pods have any hostname (KEP-4762).
	HostnameOverride featuregate.Feature = "HostnameOverride"
	// HPAConfigurableTolerance lets autoscalers have tolerances of their own (KEP-4951).
	HPAConfigurableTolerance featuregate.Feature = "HPAConfigurableTolerance"
	// HPAGeneration counts the changes of an autoscaler in metadata.generation.
	HPAGeneration featuregate.Feature = "HPAGeneration"
	// HPAScaleToZero lets an autoscaler with metrics of other objects scale to zero (KEP-2021).
	HPAScaleToZero featuregate.Feature = "HPAScaleToZero"
	// ImageVolume lets pods mount images (KEP-4639).
	ImageVolume featuregate.Feature = "ImageVolume"
	// InPlacePodLevelResourcesVerticalScaling resizes the resources of a whole pod (KEP-5419).
	InPlacePodLevelResourcesVerticalScaling featuregate.Feature = "InPlacePodLevelResourcesVerticalScaling"
	// InPlacePodVerticalScalingInitContainers resizes init containers.
	InPlacePodVerticalScalingInitContainers featuregate.Feature = "InPlacePodVerticalScalingInitContainers"
	// KubeletInUserNamespace keeps what nodes say about user namespaces of kubelets (KEP-2033).
	KubeletInUserNamespace featuregate.Feature = "KubeletInUserNamespace"
	// MaxUnavailableStatefulSet lets a StatefulSet replace several pods at once (KEP-961).
	MaxUnavailableStatefulSet featuregate.Feature = "MaxUnavailableStatefulSet"
	// MutableCSINodeAllocatableCount lets CSI nodes change their limits of volumes (KEP-4876).
	MutableCSINodeAllocatableCount featuregate.Feature = "MutableCSINodeAllocatableCount"
	// MutablePodResourcesForSuspendedJobs lets a suspended job change its pods' resources
	// (KEP-5440).
	MutablePodResourcesForSuspendedJobs featuregate.Feature = "MutablePodResourcesForSuspendedJobs"
	// MutableSchedulingDirectivesForSuspendedJobs lets a suspended job that has started change
	// where its pods run.
	MutableSchedulingDirectivesForSuspendedJobs featuregate.Feature = "MutableSchedulingDirectivesForSuspendedJobs"
	// NodeControllerLeaseCircuitBreaker reads a node's lease again before the node is unhealthy.
	NodeControllerLeaseCircuitBreaker featuregate.Feature = "NodeControllerLeaseCircuitBreaker"
	// NodeDeclaredFeatures lets nodes declare what they can do (KEP-5328).
	NodeDeclaredFeatures featuregate.Feature = "NodeDeclaredFeatures"
	// PersistentVolumeClaimUnusedSinceTime says since when a claim is not used (KEP-5541).
	PersistentVolumeClaimUnusedSinceTime featuregate.Feature = "PersistentVolumeClaimUnusedSinceTime"
	// PodCertificateRequest lets pods ask for certificates (KEP-4317).
	PodCertificateRequest featuregate.Feature = "PodCertificateRequest"
	// PodLevelResourcesFixDefaulting ignores empty resources of a whole pod (KEP-2837).
	PodLevelResourcesFixDefaulting featuregate.Feature = "PodLevelResourcesFixDefaulting"
	// PodLevelResourcesFixKubeletQOSClass ignores empty resources of a whole pod in its QoS class
	// (KEP-2837).
	PodLevelResourcesFixKubeletQOSClass featuregate.Feature = "PodLevelResourcesFixKubeletQOSClass"
	// PodTopologyLabelsAdmission copies topology labels of nodes to pods (KEP-4742).
	PodTopologyLabelsAdmission featuregate.Feature = "PodTopologyLabelsAdmission"
	// RelaxedServiceNameValidation lets names of services begin with a digit (KEP-5311).
	RelaxedServiceNameValidation featuregate.Feature = "RelaxedServiceNameValidation"
	// ResourceHealthStatus shows the health of devices in the status of pods (KEP-4680).
	ResourceHealthStatus featuregate.Feature = "ResourceHealthStatus"
	// ResourceHealthStatusMessage adds messages to the health of devices (KEP-4680).
	ResourceHealthStatusMessage featuregate.Feature = "ResourceHealthStatusMessage"
	// RestartAllContainersOnContainerExits lets a container's exit restart the whole pod
	// (KEP-5532).
	RestartAllContainersOnContainerExits featuregate.Feature = "RestartAllContainersOnContainerExits"
	// SELinuxMount mounts all volumes with their SELinux label (KEP-1710).
	SELinuxMount featuregate.Feature = "SELinuxMount"
	// ServiceCIDRStatusFieldWiping ignores the status of a service CIDR that a client creates.
	ServiceCIDRStatusFieldWiping featuregate.Feature = "ServiceCIDRStatusFieldWiping"
	// StorageCapacityScoring prefers nodes by their free storage capacity (KEP-4049).
	StorageCapacityScoring featuregate.Feature = "StorageCapacityScoring"
	// StorageVersionMigrator rewrites stored objects (KEP-4192).
	StorageVersionMigrator featuregate.Feature = "StorageVersionMigrator"
	// StrictIPCIDRValidation refuses ambiguous addresses (KEP-4858).
	StrictIPCIDRValidation featuregate.Feature = "StrictIPCIDRValidation"
	// VolumeLimitScaling lets a CSI driver keep pods from nodes on which it is missing (KEP-5030).
	VolumeLimitScaling featuregate.Feature = "VolumeLimitScaling"
)

// Enabled reports whether a gate of this package is on. Gates are shared by the whole process.
func Enabled(gate featuregate.Feature) bool {
	if err := register(); err != nil {
		panic(err) // two libraries of this program disagree about a gate
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}

// Compatible returns the oldest version of Kubernetes that has to understand what this process
// stores: the minor version before the one that it emulates, if that can be emulated too.
func Compatible() *version.Version {
	return utilfeature.DefaultMutableFeatureGate.MinCompatibilityVersion()
}

// Register makes the gates known to the Kubernetes libraries, so that they can be set and have
// metrics. Gates that another library has registered stay as they are.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	gates := utilfeature.DefaultMutableFeatureGate
	known := gates.GetAllVersioned()
	missing := map[featuregate.Feature]featuregate.VersionedSpecs{}
	for gate, periods := range history() {
		if _, ok := known[gate]; ok {
			continue
		}
		for _, p := range periods {
			missing[gate] = append(missing[gate], p.spec())
		}
	}
	if err := gates.AddVersioned(missing); err != nil {
		return fmt.Errorf("register feature gates: %w", err)
	}
	return nil
})
