package features

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// period is what a gate is from a minor version of Kubernetes on.
type period struct {
	since uint
	stage stage
	value value
}

type stage int

const (
	ga stage = iota
	alpha
	beta
	deprecated
)

// value is the default of a gate. A locked one cannot be changed.
type value int

const (
	off value = iota
	on
	lockedOff
	lockedOn
)

func (p period) spec() featuregate.FeatureSpec {
	spec := featuregate.FeatureSpec{
		Version:       version.MajorMinor(1, p.since),
		Default:       p.value == on || p.value == lockedOn,
		LockToDefault: p.value == lockedOff || p.value == lockedOn,
	}
	switch p.stage {
	case alpha:
		spec.PreRelease = featuregate.Alpha
	case beta:
		spec.PreRelease = featuregate.Beta
	case deprecated:
		spec.PreRelease = featuregate.Deprecated
	}
	return spec
}

// history has the gates of kube-apiserver 1.37 that the libraries of this module do not declare.
func history() map[featuregate.Feature][]period {
	return map[featuregate.Feature][]period{
		"AllowDNSOnlyNodeCSR":                            {{0, ga, on}, {31, deprecated, off}},
		"AllowInsecureKubeletCertificateSigningRequests": {{0, ga, on}, {31, deprecated, off}},
		"AllowOverwriteTerminationGracePeriodSeconds": {
			{0, ga, on}, {32, deprecated, off}, {35, deprecated, lockedOff},
		},
		"AllowServiceExternalIPs":                      {{0, ga, on}},
		"AtomicFIFO":                                   {{36, beta, on}},
		"AtomicWriteVolumeUserFields":                  {{37, alpha, off}},
		"AuthorizePodWebsocketUpgradeCreatePermission": {{35, beta, on}},
		"CPUManagerPolicyAlphaOptions":                 {{23, alpha, off}},
		"CPUManagerPolicyBetaOptions":                  {{23, beta, on}},
		"CPUManagerPolicyOptions": {
			{22, alpha, off}, {23, beta, on}, {33, ga, lockedOn},
		},
		"CRIListStreaming":                                     {{36, alpha, off}},
		"CSIServiceAccountTokenSecrets":                        {{35, beta, on}, {36, ga, lockedOn}},
		"CSIVolumeHealth":                                      {{21, alpha, off}},
		"ChangeContainerStatusOnKubeletRestart":                {{0, ga, on}, {35, deprecated, off}},
		"ClearingNominatedNodeNameAfterBinding":                {{34, alpha, off}, {35, beta, on}},
		"ClientsAllowCARotation":                               {{36, beta, on}},
		"ClientsAllowCBOR":                                     {{32, alpha, off}},
		"ClientsAllowTLSCacheGC":                               {{36, beta, on}},
		"ClientsPreferCBOR":                                    {{32, alpha, off}},
		"CloudControllerManagerWatchBasedRoutesReconciliation": {{35, alpha, off}},
		"CloudControllerManagerWebhook":                        {{27, alpha, off}},
		"ClusterTrustBundle": {
			{27, alpha, off}, {33, beta, off}, {37, ga, on},
		},
		"ClusterTrustBundleProjection": {
			{29, alpha, off}, {33, beta, off}, {37, ga, on},
		},
		"CompositePodGroup":                                {{37, alpha, off}},
		"ContainerCheckpoint":                              {{25, alpha, off}, {30, beta, on}},
		"ContainerRestartRules":                            {{34, alpha, off}, {35, beta, on}},
		"ContainerStopSignals":                             {{33, alpha, off}},
		"ContextualLogging":                                {{24, alpha, off}, {30, beta, on}},
		"ControllerManagerReleaseLeaderElectionLockOnExit": {{36, alpha, off}},
		"CrossNamespaceVolumeDataSource":                   {{26, alpha, off}},
		"CustomCPUCFSQuotaPeriod":                          {{12, alpha, off}, {36, ga, on}},
		"DRAAdminAccess": {
			{32, alpha, off}, {34, beta, on}, {36, ga, lockedOn},
		},
		"DRAConsumableCapacity":        {{34, alpha, off}, {36, beta, on}},
		"DRADerivedAttributes":         {{37, alpha, off}},
		"DRADeviceBindingConditions":   {{34, alpha, off}, {36, beta, on}},
		"DRADeviceCompatibilityGroups": {{37, alpha, off}},
		"DRADeviceTaintRules": {
			{35, alpha, off}, {36, beta, off}, {37, ga, on},
		},
		"DRADeviceTaints": {
			{33, alpha, off}, {36, beta, on}, {37, ga, on},
		},
		"DRAExtendedResource": {
			{34, alpha, off}, {36, beta, on}, {37, ga, lockedOn},
		},
		"DRAFractionalCapacityRange":  {{37, beta, off}},
		"DRAListTypeAttributes":       {{36, alpha, off}},
		"DRANodeAllocatableResources": {{36, alpha, off}},
		"DRAOptionalNodeOperations":   {{37, alpha, off}},
		"DRAPartitionableDevices":     {{33, alpha, off}, {36, beta, on}},
		"DRAPartitionableDevicesType": {{37, alpha, off}},
		"DRAPrioritizedList": {
			{33, alpha, off}, {34, beta, on}, {36, ga, on}, {37, ga, lockedOn},
		},
		"DRAResourceClaimDeviceStatus": {
			{32, alpha, off}, {33, beta, on}, {37, ga, lockedOn},
		},
		"DRAResourceClaimGranularStatusAuthorization": {{36, beta, on}},
		"DRAResourcePoolStatus":                       {{36, alpha, off}},
		"DRASchedulerFilterTimeout":                   {{34, beta, on}},
		"DRAWorkloadResourceClaims":                   {{36, alpha, off}, {37, beta, off}},
		"DefaultPodSysctls":                           {{37, alpha, off}},
		"DeploymentReplicaSetTerminatingReplicas":     {{33, alpha, off}, {35, beta, on}},
		"DisableAllocatorDualWrite": {
			{31, alpha, off}, {33, beta, off}, {34, ga, on}, {35, ga, lockedOn},
		},
		"DisableCPUQuotaWithExclusiveCPUs": {
			{33, beta, on}, {36, deprecated, on}, {37, deprecated, lockedOn},
		},
		"DisableNodeKubeProxyVersion": {
			{29, alpha, off}, {31, deprecated, off}, {33, deprecated, on}, {36, deprecated, lockedOn},
		},
		"DynamicResourceAllocation": {
			{26, alpha, off}, {32, beta, off}, {34, ga, on}, {35, ga, lockedOn},
		},
		"EmptyDirVolumeMode":        {{37, alpha, off}},
		"EnvFiles":                  {{34, alpha, off}, {35, beta, on}},
		"EventedPLEG":               {{26, alpha, off}},
		"EvictionRequestAPI":        {{37, alpha, off}},
		"ExecProbeTimeout":          {{20, ga, on}, {35, ga, lockedOn}},
		"ExtendWebSocketsToKubelet": {{36, beta, on}},
		"ExternalServiceAccountTokenSigner": {
			{32, alpha, off}, {34, beta, on}, {36, ga, lockedOn},
		},
		"GRPCContainerProbeTLS": {{37, alpha, off}},
		"GenericWorkload":       {{35, alpha, off}, {37, beta, off}},
		"GitRepoVolumeDriver": {
			{0, ga, on}, {33, deprecated, off}, {36, deprecated, lockedOff},
		},
		"GracefulNodeShutdown":                   {{20, alpha, off}, {21, beta, on}},
		"GracefulNodeShutdownBasedOnPodPriority": {{23, alpha, off}, {24, beta, on}},
		"H2CContainerProbe":                      {{37, alpha, off}},
		"HPAConfigurableTolerance": {
			{33, alpha, off}, {35, beta, on}, {37, ga, lockedOn},
		},
		"HPAGeneration":             {{37, beta, on}},
		"HPAOptimizedSelectorStore": {{37, beta, on}},
		"HPAScaleToZero":            {{16, alpha, off}, {37, beta, on}},
		"HostnameOverride": {
			{34, alpha, off}, {35, beta, on}, {37, ga, lockedOn},
		},
		"HugepageAwareEviction": {{37, beta, on}},
		"ImageMaximumGCAge": {
			{29, alpha, off}, {30, beta, on}, {35, ga, lockedOn},
		},
		"ImageVolume": {
			{31, alpha, off}, {33, beta, off}, {35, beta, on}, {36, ga, lockedOn},
		},
		"ImageVolumeWithDigest":                   {{35, alpha, off}},
		"InOrderInformers":                        {{33, beta, on}, {36, ga, lockedOn}},
		"InOrderInformersBatchProcess":            {{35, beta, on}},
		"InPlacePodLevelResourcesVerticalScaling": {{35, alpha, off}, {36, beta, on}},
		"InPlacePodVerticalScaling": {
			{27, alpha, off}, {33, beta, on}, {35, ga, lockedOn},
		},
		"InPlacePodVerticalScalingExclusiveCPUs":       {{32, alpha, off}},
		"InPlacePodVerticalScalingExclusiveMemory":     {{34, alpha, off}},
		"InPlacePodVerticalScalingInitContainers":      {{36, beta, on}, {37, ga, lockedOn}},
		"InPlacePodVerticalScalingMemoryBackedVolumes": {{37, alpha, off}},
		"InPlacePodVerticalScalingSchedulerPreemption": {{37, alpha, off}},
		"InformerResourceVersion":                      {{30, alpha, off}, {35, ga, on}},
		"InterPodAffinityHostnameFastPath":             {{37, alpha, off}},
		"JobManagedBy": {
			{30, alpha, off}, {32, beta, on}, {35, ga, lockedOn},
		},
		"KubeProxyIPVS":                       {{0, ga, on}, {37, deprecated, on}},
		"KubeProxyNFTablesLocalhostNodePorts": {{37, alpha, off}},
		"KubeletAllocatedPodsEndpoint":        {{37, alpha, off}},
		"KubeletCgroupDriverFromCRI": {
			{28, alpha, off}, {31, beta, on}, {34, ga, lockedOn},
		},
		"KubeletCrashLoopBackOffMax":      {{32, alpha, off}, {35, beta, on}},
		"KubeletEnsureSecretPulledImages": {{33, alpha, off}, {35, beta, on}},
		"KubeletFineGrainedAuthz": {
			{32, alpha, off}, {33, beta, on}, {36, ga, lockedOn},
		},
		"KubeletInUserNamespace": {{22, alpha, off}, {37, beta, on}},
		"KubeletPSI": {
			{33, alpha, off}, {34, beta, on}, {36, ga, lockedOn},
		},
		"KubeletPodResourcesDynamicResources": {
			{27, alpha, off}, {34, beta, on}, {36, ga, lockedOn},
		},
		"KubeletPodResourcesGet": {
			{27, alpha, off}, {34, beta, on}, {36, ga, lockedOn},
		},
		"KubeletPodResourcesListUseActivePods":             {{0, ga, off}, {34, deprecated, on}},
		"KubeletRegistrationGetOnExistsOnly":               {{0, ga, on}, {32, deprecated, off}},
		"KubeletSeparateDiskGC":                            {{29, alpha, off}, {31, beta, on}},
		"KubeletServiceAccountTokenForCredentialProviders": {{33, alpha, off}, {34, beta, on}},
		"KubeletTracing": {
			{25, alpha, off}, {27, beta, on}, {34, ga, lockedOn},
		},
		"LocalStorageCapacityIsolationFSQuotaMonitoring": {{15, alpha, off}, {31, beta, off}},
		"LoggingAlphaOptions":                            {{24, alpha, off}},
		"LoggingBetaOptions":                             {{24, beta, on}},
		"MatchLabelKeysInPodAffinity": {
			{29, alpha, off}, {31, beta, on}, {33, ga, lockedOn},
		},
		"MatchLabelKeysInPodTopologySpread":              {{25, alpha, off}, {27, beta, on}},
		"MatchLabelKeysInPodTopologySpreadSelectorMerge": {{34, beta, on}},
		"MaxUnavailableStatefulSet": {
			{24, alpha, off}, {35, beta, off}, {37, beta, on},
		},
		"MemoryQoS": {{22, alpha, off}, {37, beta, on}},
		"MultiCIDRServiceAllocator": {
			{27, alpha, off}, {31, beta, off}, {33, ga, on}, {34, ga, lockedOn},
		},
		"MutableCSINodeAllocatableCount": {
			{33, alpha, off}, {34, beta, off}, {35, beta, on}, {36, ga, lockedOn},
		},
		"MutablePVNodeAffinity":                       {{35, alpha, off}},
		"MutablePodResourcesForSuspendedJobs":         {{35, alpha, off}, {36, beta, on}},
		"MutableSchedulingDirectivesForSuspendedJobs": {{35, alpha, off}, {36, beta, on}},
		"NFTablesNetlink":                             {{37, beta, on}},
		"NFTablesProxyMode": {
			{29, alpha, off}, {31, beta, on}, {33, ga, lockedOn},
		},
		"NodeControllerLeaseCircuitBreaker": {{37, beta, on}},
		"NodeDeclaredFeatures": {
			{35, alpha, off}, {36, beta, on}, {37, ga, lockedOn},
		},
		"NodeInclusionPolicyInPodTopologySpread": {
			{25, alpha, off}, {26, beta, on}, {33, ga, lockedOn},
		},
		"NodeLifecycleConditions": {{37, alpha, off}},
		"NodeLogQuery": {
			{27, alpha, off}, {30, beta, off}, {36, ga, lockedOn},
		},
		"NodeSwap": {
			{22, alpha, off}, {28, beta, off}, {30, beta, on}, {34, ga, lockedOn},
		},
		"NominatedNodeNameForExpectation":      {{34, alpha, off}, {35, beta, on}},
		"OpportunisticBatching":                {{35, beta, on}},
		"PLEGOnDemandRelist":                   {{36, beta, on}, {37, ga, lockedOn}},
		"PersistentVolumeClaimUnusedSinceTime": {{36, alpha, off}, {37, beta, on}},
		"PodAndContainerStatsFromCRI":          {{23, alpha, off}, {37, beta, off}},
		"PodCertificateRequest":                {{34, alpha, off}, {35, beta, off}, {37, ga, on}},
		"PodDeletionCost":                      {{21, alpha, off}, {22, beta, on}},
		"PodGroupPreemptionPolicy":             {{37, alpha, off}},
		"PodLevelResourceManagers":             {{36, alpha, off}, {37, beta, off}},
		"PodLevelResources":                    {{32, alpha, off}, {34, beta, on}},
		"PodLevelResourcesFixDefaulting":       {{37, beta, on}},
		"PodLevelResourcesFixKubeletQOSClass":  {{37, beta, on}},
		"PodLogsQuerySplitStreams":             {{32, alpha, off}},
		"PodObservedGenerationTracking": {
			{33, alpha, off}, {34, beta, on}, {35, ga, lockedOn},
		},
		"PodReadyToStartContainersCondition": {
			{28, alpha, off}, {29, beta, on}, {37, ga, lockedOn},
		},
		"PodSchedulingReadiness":        {{26, alpha, off}, {27, beta, on}, {30, ga, lockedOn}},
		"PodTopologyLabelsAdmission":    {{33, alpha, off}, {35, beta, on}},
		"PodsAPI":                       {{36, alpha, off}, {37, beta, on}},
		"PortForwardWebsockets":         {{30, alpha, off}, {31, beta, on}},
		"PreferSameTrafficDistribution": {{33, alpha, off}, {34, beta, on}, {35, ga, lockedOn}},
		"ProcMountType": {
			{12, alpha, off}, {31, beta, off}, {33, beta, on}, {36, ga, lockedOn},
		},
		"QOSReserved":                        {{11, alpha, off}},
		"RecoverVolumeExpansionFailure":      {{23, alpha, off}, {32, beta, on}, {34, ga, lockedOn}},
		"RecursiveReadOnlyMounts":            {{30, alpha, off}, {31, beta, on}, {33, ga, lockedOn}},
		"ReduceDefaultCrashLoopBackOffDecay": {{33, alpha, off}},
		"RelaxedEnvironmentVariableValidation": {
			{30, alpha, off}, {32, beta, on}, {34, ga, lockedOn},
		},
		"RelaxedServiceNameValidation": {
			{34, alpha, off}, {36, beta, on}, {37, ga, lockedOn},
		},
		"ReloadKubeletClientCAFile":            {{36, beta, on}},
		"ReloadKubeletServerCertificateFile":   {{31, beta, on}},
		"ResourceHealthStatus":                 {{31, alpha, off}, {36, beta, on}},
		"ResourceHealthStatusMessage":          {{36, beta, on}},
		"RestartAllContainersOnContainerExits": {{35, alpha, off}, {36, beta, on}},
		"RotateKubeletServerCertificate":       {{7, alpha, off}, {12, beta, on}},
		"RuntimeClassInImageCriApi":            {{29, alpha, off}},
		"SELinuxChangePolicy": {
			{32, alpha, off}, {33, beta, on}, {36, ga, lockedOn},
		},
		"SELinuxMount": {{30, alpha, off}, {33, beta, off}, {37, ga, on}},
		"SELinuxMountReadWriteOncePod": {
			{25, alpha, off}, {27, beta, off}, {28, beta, on}, {36, ga, lockedOn},
		},
		"SchedulerAsyncAPICalls":                {{34, beta, off}},
		"SchedulerAsyncPreemption":              {{32, alpha, off}, {33, beta, on}},
		"SchedulerPopFromBackoffQ":              {{33, beta, on}},
		"SchedulerPreQueueingHints":             {{37, alpha, off}},
		"SeparateTaintEvictionController":       {{29, beta, on}, {34, ga, lockedOn}},
		"ServiceAccountNodeAudienceRestriction": {{32, beta, off}, {33, beta, on}},
		"ServiceAccountTokenJTI": {
			{29, alpha, off}, {30, beta, on}, {32, ga, lockedOn},
		},
		"ServiceAccountTokenNodeBinding": {
			{29, alpha, off}, {31, beta, on}, {33, ga, lockedOn},
		},
		"ServiceAccountTokenNodeBindingValidation": {
			{29, alpha, off}, {30, beta, on}, {32, ga, lockedOn},
		},
		"ServiceAccountTokenPodNodeInfo": {
			{29, alpha, off}, {30, beta, on}, {32, ga, lockedOn},
		},
		"ServiceCIDRStatusFieldWiping":          {{0, ga, off}, {36, deprecated, on}},
		"StaleControllerConsistencyDaemonSet":   {{36, beta, on}},
		"StaleControllerConsistencyHPA":         {{37, beta, on}},
		"StaleControllerConsistencyJob":         {{36, beta, on}},
		"StaleControllerConsistencyReplicaSet":  {{36, beta, on}},
		"StaleControllerConsistencyStatefulSet": {{36, beta, on}},
		"StatefulSetRecreateStrategy":           {{37, alpha, off}},
		"StatefulSetSemanticRevisionComparison": {{0, beta, on}},
		"StorageCapacityScoring":                {{33, alpha, off}, {37, beta, on}},
		"StorageNamespaceIndex":                 {{30, beta, on}, {33, deprecated, on}},
		"StorageVersionMigrator":                {{30, alpha, off}, {35, beta, off}, {37, ga, on}},
		"StrictIPCIDRValidation":                {{33, alpha, off}, {36, beta, on}},
		"SupplementalGroupsPolicy": {
			{31, alpha, off}, {33, beta, on}, {35, ga, lockedOn},
		},
		"SystemdWatchdog":                    {{32, beta, on}, {35, ga, lockedOn}},
		"TaintTolerationComparisonOperators": {{35, alpha, off}},
		"TopologyAwareWorkloadScheduling":    {{36, alpha, off}},
		"TopologyManagerPolicyAlphaOptions":  {{26, alpha, off}},
		"TopologyManagerPolicyBetaOptions":   {{26, beta, off}, {28, beta, on}},
		"TopologyManagerPolicyOptions": {
			{26, alpha, off}, {28, beta, on}, {32, ga, lockedOn},
		},
		"TranslateStreamCloseWebsocketRequests": {{29, alpha, off}, {30, beta, on}},
		"UnlockWhileProcessingFIFO":             {{36, beta, on}},
		"UserNamespacesHostNetworkSupport":      {{35, alpha, off}},
		"UserNamespacesSupport": {
			{25, alpha, off}, {30, beta, off}, {33, beta, on}, {36, ga, lockedOn},
		},
		"VolumeAttributesClass": {
			{29, alpha, off}, {31, beta, off}, {34, ga, on}, {36, ga, lockedOn},
		},
		"VolumeBindMountOptions":      {{37, alpha, off}},
		"VolumeLimitScaling":          {{35, alpha, off}, {37, beta, on}},
		"WatchListClient":             {{30, beta, off}, {35, beta, on}},
		"WinDSR":                      {{14, alpha, off}, {33, beta, on}, {34, ga, lockedOn}},
		"WinOverlay":                  {{14, alpha, off}, {20, beta, on}, {34, ga, lockedOn}},
		"WindowsCPUAndMemoryAffinity": {{32, alpha, off}},
		"WindowsGracefulNodeShutdown": {{32, alpha, off}, {34, beta, on}},
		"WindowsHostNetwork":          {{26, alpha, off}, {33, deprecated, off}},
		"WorkloadWithJob":             {{36, alpha, off}},
	}
}
