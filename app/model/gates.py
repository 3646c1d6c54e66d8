"""The feature gates of kube-scheduler 1.36 to 1.38 as data: what they are in each version, and what is done here.

kube-scheduler takes the gates of all of Kubernetes, since tools set the same ones for every component. Those of other
components change nothing here; they are listed so that a name which no component knows is a mistake. The columns of
1.38 are those of 1.37 but for what its first alphas removed or locked.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

#: The versions of kube-scheduler whose rules are built, oldest first.
VERSIONS: Final = ("1.36", "1.37", "1.38")


class GateInVersion(msgspec.Struct, frozen=True):
    """A feature gate in one version."""

    default: bool
    #: Whether it can be set only to its default.
    locked: bool
    #: ``ALPHA``, ``BETA``, ``DEPRECATED``, empty for GA, as in kube-scheduler's metric; empty for gates of others.
    stage: str


class Gate(msgspec.Struct, frozen=True):
    """A feature gate."""

    name: str
    #: Version -> the gate in it; versions that do not know it are left out.
    versions: Mapping[str, GateInVersion]
    #: The values that are done here: ``frozenset({True})`` for what is always on.
    done: frozenset[bool]
    #: Whether both are done, and differ.
    switches: bool = False


#: Name; in each of VERSIONS stage, default (+ or -) and ``!`` if locked, or ``.`` if unknown; what is done here: the
#: gate ``on`` or ``off``, or ``either``, or the ``same`` with both.
_READ_HERE: Final = """
ClearingNominatedNodeNameAfterBinding         beta+   beta+   beta+   on
ComponentFlagz                                beta+   beta+   beta+   same
ComponentStatusz                              beta+   beta+   beta+   same
CompositePodGroup                             .       alpha-  alpha-  off
CoordinatedLeaderElection                     beta-   beta-   beta-   off
DRAAdminAccess                                GA+!    GA+!    GA+!    on
DRAConsumableCapacity                         beta+   beta+   beta+   on
DRADerivedAttributes                          .       alpha-  alpha-  off
DRADeviceBindingConditions                    beta+   beta+   beta+   on
DRADeviceCompatibilityGroups                  .       alpha-  alpha-  off
DRADeviceTaintRules                           beta-   GA+     GA+!    either
DRADeviceTaints                               beta+   GA+     GA+!    on
DRAExtendedResource                           beta+   GA+!    GA+!    on
DRAFractionalCapacityRange                    .       beta-   beta-   off
DRAListTypeAttributes                         alpha-  alpha-  alpha-  off
DRANodeAllocatableResources                   alpha-  alpha-  alpha-  off
DRAOptionalNodeOperations                     .       alpha-  alpha-  off
DRAPartitionableDevices                       beta+   beta+   beta+   on
DRAPrioritizedList                            GA+     GA+!    GA+!    on
DRAResourceClaimDeviceStatus                  beta+   GA+!    GA+!    on
DRAResourceClaimGranularStatusAuthorization   beta+   beta+   beta+   same
DRASchedulerFilterTimeout                     beta+   beta+   beta+   on
DRAWorkloadResourceClaims                     alpha-  beta-   beta-   either
DynamicResourceAllocation                     GA+!    GA+!    .       on
GangScheduling                                alpha-  .       .       either
GenericWorkload                               alpha-  beta-   beta-   either
InPlacePodLevelResourcesVerticalScaling       beta+   beta+   beta+   on
InPlacePodVerticalScaling                     GA+!    GA+!    GA+!    on
InPlacePodVerticalScalingSchedulerPreemption  .       alpha-  alpha-  off
InterPodAffinityHostnameFastPath              .       alpha-  alpha-  same
MatchLabelKeysInPodAffinity                   GA+!    GA+!    .       on
MatchLabelKeysInPodTopologySpread             beta+   beta+   beta+   on
MutableCSINodeAllocatableCount                GA+!    GA+!    GA+!    same
NodeDeclaredFeatures                          beta+   GA+!    GA+!    on
NodeInclusionPolicyInPodTopologySpread        GA+!    GA+!    GA+!    on
NominatedNodeNameForExpectation               beta+   beta+   beta+   on
OpportunisticBatching                         beta+   beta+   beta+   same
PodGroupPreemptionPolicy                      .       alpha-  alpha-  either
PodLevelResources                             beta+   beta+   beta+   on
PodObservedGenerationTracking                 GA+!    GA+!    GA+!    on
PodSchedulingReadiness                        GA+!    GA+!    .       on
SchedulerAsyncAPICalls                        beta-   beta-   beta-   same
SchedulerAsyncPreemption                      beta+   beta+   beta+   on
SchedulerPopFromBackoffQ                      beta+   beta+   beta+   on
SchedulerPreQueueingHints                     .       alpha-  alpha-  same
SchedulerQueueingHints                        GA+!    .       .       on
SidecarContainers                             GA+!    .       .       on
StorageCapacityScoring                        alpha-  beta+   beta+   either
TaintTolerationComparisonOperators            alpha-  alpha-  alpha-  off
TopologyAwareWorkloadScheduling               alpha-  alpha-  alpha-  either
VolumeAttributesClass                         GA+!    GA+!    GA+!    on
VolumeBindMountOptions                        .       alpha-  alpha-  same
VolumeLimitScaling                            alpha-  beta+   beta+   either
WorkloadAwarePreemption                       alpha-  .       .       either
"""

#: As in 1.36 and in 1.37: ``~`` free, ``+!`` and ``-!`` locked, ``.`` unknown; then the names.
_OF_OTHERS: Final = """
+! +!
    AggregatedDiscoveryRemoveBetaType CPUManagerPolicyOptions CRDValidationRatcheting
    CSIServiceAccountTokenSecrets CustomResourceFieldSelectors DeclarativeValidation DisableAllocatorDualWrite
    DisableNodeKubeProxyVersion ExecProbeTimeout ExternalServiceAccountTokenSigner ImageMaximumGCAge
    ImageVolume JobManagedBy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing MultiCIDRServiceAllocator
    NFTablesProxyMode NodeLogQuery NodeSwap PreferSameTrafficDistribution ProcMountType
    RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedEnvironmentVariableValidation
    SELinuxChangePolicy SELinuxMountReadWriteOncePod SeparateTaintEvictionController ServiceAccountTokenJTI
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
    SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport WinDSR
    WinOverlay
+! .
    APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
    AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache JobBackoffLimitPerIndex
    JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown OrderedNamespaceDeletion
    PodLifecycleSleepAction PodLifecycleSleepActionAllowZero RelaxedDNSSearchValidation
    ResilientWatchCacheInitialization RetryGenerateName StreamingCollectionEncodingToJSON
    StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
-! -!
    AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
. ~
    APIServerWebhookAuthenticationToken AtomicWriteVolumeUserFields ConsistentListFromCacheSkipTimeoutFallback
    CustomCPUCFSQuotaPeriod DRAPartitionableDevicesType DefaultPodSysctls EmptyDirVolumeMode EtcdRangeStream
    EvictionRequestAPI ExcludeAdmissionWebhookVirtualResources GRPCContainerProbeTLS H2CContainerProbe
    HPAGeneration HPAOptimizedSelectorStore HugepageAwareEviction InPlacePodVerticalScalingMemoryBackedVolumes
    KubeProxyIPVS KubeProxyNFTablesLocalhostNodePorts KubeletAllocatedPodsEndpoint NFTablesNetlink
    NodeControllerLeaseCircuitBreaker NodeLifecycleConditions PodLevelResourcesFixDefaulting
    PodLevelResourcesFixKubeletQOSClass RuntimeClassInImageCriApi StaleControllerConsistencyHPA
    StatefulSetRecreateStrategy WatchListCompression WebhookRoundTripLoadBalancing
~ +!
    DisableCPUQuotaWithExclusiveCPUs HPAConfigurableTolerance HostnameOverride
    InPlacePodVerticalScalingInitContainers PLEGOnDemandRelist PodReadyToStartContainersCondition
    RelaxedServiceNameValidation WatchCacheInitializationPostStartHook
~ -!
    DeclarativeValidationTakeover
~ .
    CPUCFSQuotaPeriod PreventStaticPodAPIReferences RuntimeClassInImageCriAPI
~ ~
    APIResponseCompression APIServerIdentity APIServingWithRoutine AllowDNSOnlyNodeCSR
    AllowInsecureKubeletCertificateSigningRequests AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs
    AllowUnsafeMalformedObjectDeletion AuthorizePodWebsocketUpgradeCreatePermission CBORServingAndStorage
    CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CRDObservedGenerationTracking CRIListStreaming
    CSIVolumeHealth ChangeContainerStatusOnKubeletRestart CloudControllerManagerWatchBasedRoutesReconciliation
    CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals ContextualLogging
    ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAResourcePoolStatus
    DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles
    EventedPLEG ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KMSv1 KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
    KubeletInUserNamespace KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly
    KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
    LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions LoggingBetaOptions
    ManifestBasedAdmissionControlConfig MatchLabelKeysInPodTopologySpreadSelectorMerge
    MaxUnavailableStatefulSet MemoryQoS MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NativeHistograms OpenAPIEnums
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodCertificateRequest PodDeletionCost
    PodLevelResourceManagers PodLogsQuerySplitStreams PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets
    QOSReserved ReduceDefaultCrashLoopBackOffDecay ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate SELinuxMount
    ServiceAccountNodeAudienceRestriction ServiceCIDRStatusFieldWiping ShardedListAndWatch
    SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionAPI StorageVersionHash
    StorageVersionMigrator StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UserNamespacesHostNetworkSupport
    WatchList WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadWithJob
"""

_DONE: Final = {
    "on": frozenset({True}),
    "off": frozenset({False}),
    "either": frozenset({True, False}),
    "same": frozenset({True, False}),
}


def _in_version(cell: str) -> GateInVersion:
    stage = cell.rstrip("+-!~").upper()
    return GateInVersion(
        default="+" in cell, locked="!" in cell, stage="" if stage == "GA" else stage
    )


def _read_here() -> Iterator[Gate]:
    for line in _READ_HERE.split("\n")[1:-1]:
        name, *cells, done = line.split()
        versions = {
            v: _in_version(cell) for v, cell in zip(VERSIONS, cells, strict=True) if cell != "."
        }
        yield Gate(name, versions, _DONE[done], done == "either")


def _of_others() -> Iterator[Gate]:
    cells: list[str] = []
    for line in _OF_OTHERS.split("\n")[1:-1]:
        if not line.startswith(" "):
            older, newer = line.split()
            cells = [older, newer, newer]
            continue
        versions = {
            v: _in_version(cell) for v, cell in zip(VERSIONS, cells, strict=True) if cell != "."
        }
        for name in line.split():
            yield Gate(name, versions, _DONE["same"])


#: The gates that may change something in a scheduler, by name.
GATES: Final[Mapping[str, Gate]] = {gate.name: gate for gate in _read_here()}
#: The gates of other components, by name.
OTHERS: Final[Mapping[str, Gate]] = {gate.name: gate for gate in _of_others()}
#: Gate -> the gates that must be on with it, in versions that know both.
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "CompositePodGroup": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
    "DRAConsumableCapacity": ("DynamicResourceAllocation",),
    "DRADeviceBindingConditions": ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus"),
    "DRADeviceTaintRules": ("DRADeviceTaints",),
    "DRAFractionalCapacityRange": ("DRAConsumableCapacity",),
    "DRAWorkloadResourceClaims": ("DynamicResourceAllocation", "GenericWorkload"),
    "GangScheduling": ("GenericWorkload",),
    "InPlacePodLevelResourcesVerticalScaling": (
        "InPlacePodVerticalScaling",
        "PodLevelResources",
        "NodeDeclaredFeatures",
    ),
    "InPlacePodVerticalScalingSchedulerPreemption": ("InPlacePodVerticalScaling",),
    "PodGroupPreemptionPolicy": ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "WorkloadAwarePreemption": ("GangScheduling",),
    "WorkloadWithJob": ("GenericWorkload",),
}
