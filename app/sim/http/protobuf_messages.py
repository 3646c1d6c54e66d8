"""The protobuf messages that are understood: the field numbers of Kubernetes' API.

One line per message, ``number:name/type`` per field. No type means text; ``[T]`` is a list, ``{T}`` a map from texts,
``<T>`` a message whose fields belong to its parent in JSON, ``-`` a field that is not kept (managed fields, statuses
that only the server writes).
"""

from collections.abc import Mapping
from typing import Final

from app.model import pod_groups_v1alpha2

ROOTS: Final[Mapping[tuple[str, str], str]] = {
    ("", "DeleteOptions"): "DeleteOptions",
    ("v1", "Binding"): "Binding",
    ("v1", "ConfigMap"): "ConfigMap",
    ("v1", "Event"): "CoreEvent",
    ("v1", "Namespace"): "Namespace",
    ("v1", "Pod"): "PodTemplateSpec",
    ("v1", "ResourceQuota"): "ResourceQuota",
    ("v1", "Secret"): "Secret",
    ("v1", "Service"): "Service",
    ("v1", "ServiceAccount"): "ServiceAccount",
    ("apps/v1", "Deployment"): "Deployment",
    ("authentication.k8s.io/v1", "SelfSubjectReview"): "Review",
    ("authentication.k8s.io/v1", "TokenReview"): "TokenReview",
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): "AccessReview",
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): "RulesReview",
    ("authorization.k8s.io/v1", "SubjectAccessReview"): "AccessReview",
    ("batch/v1", "CronJob"): "CronJob",
    ("batch/v1", "Job"): "Job",
    ("coordination.k8s.io/v1", "Lease"): "Lease",
    ("events.k8s.io/v1", "Event"): "Event",
    ("policy/v1", "Eviction"): "Eviction",
    ("policy/v1", "PodDisruptionBudget"): "PodDisruptionBudget",
    ("resource.k8s.io/v1", "DeviceClass"): "DeviceClass",
    ("resource.k8s.io/v1", "ResourceClaim"): "ClaimOfDevices",
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): "ResourceClaimTemplate",
    ("resource.k8s.io/v1", "ResourceSlice"): "ResourceSlice",
    ("scheduling.k8s.io/v1", "PriorityClass"): "PriorityClass",
    (pod_groups_v1alpha2.VERSION, "PodGroup"): "PodGroup",
    (pod_groups_v1alpha2.VERSION, "Workload"): "GroupWorkload",
}
"""(apiVersion, kind) -> message; an empty version means any."""

WITH_STATUS: Final = frozenset({"ResourceClaim"})
"""Kinds whose status is also read, because kube-scheduler writes it in protobuf."""

MESSAGES: Final[Mapping[str, str]] = {
    # meta/v1
    "ObjectMeta": (
        "1:name 2:generateName 3:namespace 4:selfLink 5:uid 6:resourceVersion 7:generation/int"
        " 8:creationTimestamp/Time 9:deletionTimestamp/Time 10:deletionGracePeriodSeconds/int 11:labels/{string}"
        " 12:annotations/{string} 13:ownerReferences/[OwnerReference] 14:finalizers/[string] 17:managedFields/-"
    ),
    "OwnerReference": "1:kind 3:name 4:uid 5:apiVersion 6:controller/bool 7:blockOwnerDeletion/bool",
    "LabelSelector": "1:matchLabels/{string} 2:matchExpressions/[Requirement]",
    "Requirement": "1:key 2:operator 3:values/[string]",
    "DeleteOptions": (
        "1:gracePeriodSeconds/int 2:preconditions/Preconditions 3:orphanDependents/bool 4:propagationPolicy"
        " 5:dryRun/[string] 6:ignoreStoreReadErrorWithClusterBreakingPotential/bool"
    ),
    "Preconditions": "1:uid 2:resourceVersion",
    # core/v1
    "Binding": "1:metadata/ObjectMeta 2:target/ObjectReference",
    "ObjectReference": "1:kind 2:namespace 3:name 4:uid 5:apiVersion 6:resourceVersion 7:fieldPath",
    "LocalObjectReference": "1:name",
    "ConfigMap": "1:metadata/ObjectMeta 2:data/{string} 3:binaryData/{bytes} 4:immutable/bool",
    "Secret": "1:metadata/ObjectMeta 2:data/{bytes} 3:type 4:stringData/{string} 5:immutable/bool",
    "ServiceAccount": (
        "1:metadata/ObjectMeta 2:secrets/[ObjectReference] 3:imagePullSecrets/[LocalObjectReference]"
        " 4:automountServiceAccountToken/bool"
    ),
    "Namespace": "1:metadata/ObjectMeta 2:spec/NamespaceSpec 3:status/-",
    "NamespaceSpec": "1:finalizers/[string]",
    "CoreEvent": (
        "1:metadata/ObjectMeta 2:involvedObject/ObjectReference 3:reason 4:message 5:source/EventSource"
        " 6:firstTimestamp/Time 7:lastTimestamp/Time 8:count/int 9:type 10:eventTime/MicroTime 11:series/EventSeries"
        " 12:action 13:related/ObjectReference 14:reportingComponent 15:reportingInstance"
    ),
    "EventSource": "1:component 2:host",
    "EventSeries": "1:count/int 2:lastObservedTime/MicroTime",
    "ResourceQuota": "1:metadata/ObjectMeta 2:spec/ResourceQuotaSpec 3:status/-",
    "ResourceQuotaSpec": "1:hard/{Quantity} 2:scopes/[string] 3:scopeSelector/ScopeSelector",
    "ScopeSelector": "1:matchExpressions/[ScopeRequirement]",
    "ScopeRequirement": "1:scopeName 2:operator 3:values/[string]",
    "Service": "1:metadata/ObjectMeta 2:spec/ServiceSpec 3:status/-",
    "ServiceSpec": (
        "1:ports/[ServicePort] 2:selector/{string} 3:clusterIP 4:type 5:externalIPs/[string] 7:sessionAffinity"
        " 8:loadBalancerIP 9:loadBalancerSourceRanges/[string] 10:externalName 11:externalTrafficPolicy"
        " 12:healthCheckNodePort/int 13:publishNotReadyAddresses/bool 17:ipFamilyPolicy 18:clusterIPs/[string]"
        " 19:ipFamilies/[string] 20:allocateLoadBalancerNodePorts/bool 21:loadBalancerClass 22:internalTrafficPolicy"
        " 23:trafficDistribution"
    ),
    "ServicePort": "1:name 2:protocol 3:port/int 4:targetPort/IntOrString 5:nodePort/int 6:appProtocol",
    # pods; the rarer fields of pod specs are left to JSON
    "PodTemplateSpec": "1:metadata/ObjectMeta 2:spec/PodSpec 3:status/-",
    "PodSpec": (
        "2:containers/[Container] 3:restartPolicy 4:terminationGracePeriodSeconds/int 5:activeDeadlineSeconds/int"
        " 6:dnsPolicy 7:nodeSelector/{string} 8:serviceAccountName 9:serviceAccount 10:nodeName 11:hostNetwork/bool"
        " 12:hostPID/bool 13:hostIPC/bool 15:imagePullSecrets/[LocalObjectReference] 16:hostname 17:subdomain"
        " 18:affinity/Affinity 19:schedulerName 20:initContainers/[Container] 21:automountServiceAccountToken/bool"
        " 22:tolerations/[Toleration] 24:priorityClassName 25:priority/int 27:shareProcessNamespace/bool"
        " 28:readinessGates/[ReadinessGate] 29:runtimeClassName 30:enableServiceLinks/bool 31:preemptionPolicy"
        " 32:overhead/{Quantity} 33:topologySpreadConstraints/[TopologySpreadConstraint]"
        " 38:schedulingGates/[LocalObjectReference] 39:resourceClaims/[PodResourceClaim]"
        " 40:resources/ResourceRequirements 43:schedulingGroup/PodSchedulingGroup"
    ),
    "PodSchedulingGroup": "1:podGroupName",
    "Container": (
        "1:name 2:image 3:command/[string] 4:args/[string] 5:workingDir 6:ports/[ContainerPort] 7:env/[EnvVar]"
        " 8:resources/ResourceRequirements 9:volumeMounts/[VolumeMount] 13:terminationMessagePath 14:imagePullPolicy"
        " 16:stdin/bool 17:stdinOnce/bool 18:tty/bool 20:terminationMessagePolicy 24:restartPolicy"
    ),
    "ContainerPort": "1:name 2:hostPort/int 3:containerPort/int 4:protocol 5:hostIP",
    "EnvVar": "1:name 2:value",
    "VolumeMount": "1:name 2:readOnly/bool 3:mountPath 4:subPath 5:mountPropagation 6:subPathExpr 7:recursiveReadOnly",
    "ResourceRequirements": "1:limits/{Quantity} 2:requests/{Quantity} 3:claims/[ResourceClaim]",
    "ResourceClaim": "1:name 2:request",
    "PodResourceClaim": "1:name 3:resourceClaimName 4:resourceClaimTemplateName",
    "ReadinessGate": "1:conditionType",
    "Toleration": "1:key 2:operator 3:value 4:effect 5:tolerationSeconds/int",
    "TopologySpreadConstraint": (
        "1:maxSkew/int 2:topologyKey 3:whenUnsatisfiable 4:labelSelector/LabelSelector 5:minDomains/int"
        " 6:nodeAffinityPolicy 7:nodeTaintsPolicy 8:matchLabelKeys/[string]"
    ),
    "Affinity": "1:nodeAffinity/NodeAffinity 2:podAffinity/PodAffinity 3:podAntiAffinity/PodAffinity",
    "NodeAffinity": (
        "1:requiredDuringSchedulingIgnoredDuringExecution/NodeSelector"
        " 2:preferredDuringSchedulingIgnoredDuringExecution/[PreferredSchedulingTerm]"
    ),
    "NodeSelector": "1:nodeSelectorTerms/[NodeSelectorTerm]",
    "NodeSelectorTerm": "1:matchExpressions/[Requirement] 2:matchFields/[Requirement]",
    "PreferredSchedulingTerm": "1:weight/int 2:preference/NodeSelectorTerm",
    "PodAffinity": (
        "1:requiredDuringSchedulingIgnoredDuringExecution/[PodAffinityTerm]"
        " 2:preferredDuringSchedulingIgnoredDuringExecution/[WeightedPodAffinityTerm]"
    ),
    "PodAffinityTerm": (
        "1:labelSelector/LabelSelector 2:namespaces/[string] 3:topologyKey 4:namespaceSelector/LabelSelector"
        " 5:matchLabelKeys/[string] 6:mismatchLabelKeys/[string]"
    ),
    "WeightedPodAffinityTerm": "1:weight/int 2:podAffinityTerm/PodAffinityTerm",
    # workloads
    "Deployment": "1:metadata/ObjectMeta 2:spec/DeploymentSpec 3:status/-",
    "DeploymentSpec": (
        "1:replicas/int 2:selector/LabelSelector 3:template/PodTemplateSpec 4:strategy/DeploymentStrategy"
        " 5:minReadySeconds/int 6:revisionHistoryLimit/int 7:paused/bool 9:progressDeadlineSeconds/int"
    ),
    "DeploymentStrategy": "1:type 2:rollingUpdate/RollingUpdate",
    "RollingUpdate": "1:maxUnavailable/IntOrString 2:maxSurge/IntOrString",
    "Job": "1:metadata/ObjectMeta 2:spec/JobSpec 3:status/-",
    "JobSpec": (
        "1:parallelism/int 2:completions/int 3:activeDeadlineSeconds/int 4:selector/LabelSelector"
        " 5:manualSelector/bool 6:template/PodTemplateSpec 7:backoffLimit/int 8:ttlSecondsAfterFinished/int"
        " 9:completionMode 10:suspend/bool 12:backoffLimitPerIndex/int 13:maxFailedIndexes/int"
        " 14:podReplacementPolicy 15:managedBy"
    ),
    "JobTemplate": "1:metadata/ObjectMeta 2:spec/JobSpec",
    "CronJob": "1:metadata/ObjectMeta 2:spec/CronJobSpec 3:status/-",
    "CronJobSpec": (
        "1:schedule 2:startingDeadlineSeconds/int 3:concurrencyPolicy 4:suspend/bool 5:jobTemplate/JobTemplate"
        " 6:successfulJobsHistoryLimit/int 7:failedJobsHistoryLimit/int 8:timeZone"
    ),
    # devices
    "DeviceClass": "1:metadata/ObjectMeta 2:spec/DeviceClassSpec",
    "DeviceClassSpec": "1:selectors/[DeviceSelector] 2:config/[ClassConfiguration] 4:extendedResourceName",
    "ClassConfiguration": "1:config/<DeviceConfiguration>",
    "DeviceConfiguration": "1:opaque/OpaqueConfiguration",
    "OpaqueConfiguration": "1:driver 2:parameters/JSON",
    "DeviceSelector": "1:cel/CELSelector",
    "CELSelector": "1:expression",
    "ClaimOfDevices": "1:metadata/ObjectMeta 2:spec/ClaimSpec 3:status/ClaimStatus",
    "ResourceClaimTemplate": "1:metadata/ObjectMeta 2:spec/ClaimTemplateSpec",
    "ClaimTemplateSpec": "1:metadata/ObjectMeta 2:spec/ClaimSpec",
    "ClaimSpec": "1:devices/DeviceClaim",
    "DeviceClaim": "1:requests/[DeviceRequest] 2:constraints/[DeviceConstraint] 3:config/[ClaimConfiguration]",
    "DeviceRequest": "1:name 2:exactly/ExactRequest 3:firstAvailable/[SubRequest]",
    "ExactRequest": (
        "1:deviceClassName 2:selectors/[DeviceSelector] 3:allocationMode 4:count/int 5:adminAccess/bool"
        " 6:tolerations/[Toleration] 7:capacity/CapacityRequirements"
    ),
    "SubRequest": (
        "1:name 2:deviceClassName 3:selectors/[DeviceSelector] 4:allocationMode 5:count/int"
        " 6:tolerations/[Toleration] 7:capacity/CapacityRequirements"
    ),
    "CapacityRequirements": "1:requests/{Quantity}",
    "DeviceConstraint": "1:requests/[string] 2:matchAttribute 3:distinctAttribute",
    "ClaimConfiguration": "1:requests/[string] 2:config/<DeviceConfiguration>",
    "ClaimStatus": "1:allocation/Allocation 2:reservedFor/[Consumer] 4:devices/[DeviceStatus]",
    "Consumer": "1:apiGroup 3:resource 4:name 5:uid",
    "Allocation": "1:devices/DeviceResults 3:nodeSelector/NodeSelector 5:allocationTimestamp/Time",
    "DeviceResults": "1:results/[DeviceResult] 2:config/[AllocatedConfiguration]",
    "AllocatedConfiguration": "1:source 2:requests/[string] 3:config/<DeviceConfiguration>",
    "DeviceResult": (
        "1:request 2:driver 3:pool 4:device 5:adminAccess/bool 6:tolerations/[Toleration]"
        " 7:bindingConditions/[string] 8:bindingFailureConditions/[string] 9:shareID 10:consumedCapacity/{Quantity}"
    ),
    "DeviceStatus": (
        "1:driver 2:pool 3:device 4:conditions/[Condition] 5:data/JSON 6:networkData/NetworkData 7:shareID"
    ),
    "Condition": "1:type 2:status 3:observedGeneration/int 4:lastTransitionTime/Time 5:reason 6:message",
    "NetworkData": "1:interfaceName 2:ips/[string] 3:hardwareAddress",
    "ResourceSlice": "1:metadata/ObjectMeta 2:spec/SliceSpec",
    "SliceSpec": (
        "1:driver 2:pool/ResourcePool 3:nodeName 4:nodeSelector/NodeSelector 5:allNodes/bool 6:devices/[Device]"
        " 7:perDeviceNodeSelection/bool 8:sharedCounters/[CounterSet]"
    ),
    "ResourcePool": "1:name 2:generation/int 3:resourceSliceCount/int",
    "Device": (
        "1:name 2:attributes/{DeviceAttribute} 3:capacity/{DeviceCapacity} 4:consumesCounters/[Consumption] 5:nodeName"
        " 6:nodeSelector/NodeSelector 7:allNodes/bool 8:taints/[DeviceTaint] 9:bindsToNode/bool"
        " 10:bindingConditions/[string] 11:bindingFailureConditions/[string] 12:allowMultipleAllocations/bool"
        " 13:nodeAllocatableResourceMappings/-"
    ),
    "DeviceAttribute": "2:int/int 3:bool/bool 4:string 5:version",
    "DeviceCapacity": "1:value/Quantity 2:requestPolicy/RequestPolicy",
    "RequestPolicy": "1:default/Quantity 3:validValues/[Quantity] 4:validRange/PolicyRange",
    "PolicyRange": "1:min/Quantity 2:max/Quantity 3:step/Quantity",
    "DeviceTaint": "1:key 2:value 3:effect 4:timeAdded/Time",
    "CounterSet": "1:name 2:counters/{Counter}",
    "Consumption": "1:counterSet 2:counters/{Counter}",
    "Counter": "1:value/Quantity",
    # reviews
    "Review": "1:metadata/ObjectMeta 2:status/-",
    "TokenReview": "1:metadata/ObjectMeta 2:spec/TokenReviewSpec 3:status/-",
    "TokenReviewSpec": "1:token 2:audiences/[string]",
    "AccessReview": "1:metadata/ObjectMeta 2:spec/AccessReviewSpec 3:status/-",
    "AccessReviewSpec": (
        "1:resourceAttributes/ResourceAttributes 2:nonResourceAttributes/NonResourceAttributes 3:user"
        " 4:groups/[string] 5:extra/- 6:uid"
    ),
    "ResourceAttributes": (
        "1:namespace 2:verb 3:group 4:version 5:resource 6:subresource 7:name 8:fieldSelector/- 9:labelSelector/-"
    ),
    "NonResourceAttributes": "1:path 2:verb",
    "RulesReview": "1:metadata/ObjectMeta 2:spec/RulesReviewSpec 3:status/-",
    "RulesReviewSpec": "1:namespace",
    # the rest
    "Lease": "1:metadata/ObjectMeta 2:spec/LeaseSpec",
    "LeaseSpec": (
        "1:holderIdentity 2:leaseDurationSeconds/int 3:acquireTime/MicroTime 4:renewTime/MicroTime"
        " 5:leaseTransitions/int 6:strategy 7:preferredHolder"
    ),
    "Event": (
        "1:metadata/ObjectMeta 2:eventTime/MicroTime 3:series/EventSeries 4:reportingController 5:reportingInstance"
        " 6:action 7:reason 8:regarding/ObjectReference 9:related/ObjectReference 10:note 11:type"
        " 12:deprecatedSource/EventSource 13:deprecatedFirstTimestamp/Time 14:deprecatedLastTimestamp/Time"
        " 15:deprecatedCount/int"
    ),
    "Eviction": "1:metadata/ObjectMeta 2:deleteOptions/DeleteOptions",
    "PodDisruptionBudget": "1:metadata/ObjectMeta 2:spec/PodDisruptionBudgetSpec 3:status/-",
    "PodDisruptionBudgetSpec": (
        "1:minAvailable/IntOrString 2:selector/LabelSelector 3:maxUnavailable/IntOrString 4:unhealthyPodEvictionPolicy"
    ),
    "PodGroup": "1:metadata/ObjectMeta 2:spec/PodGroupSpec 3:status/-",
    "PodGroupSpec": (
        "1:podGroupTemplateRef/PodGroupTemplateReference 2:schedulingPolicy/PodGroupPolicy"
        " 3:schedulingConstraints/PodGroupConstraints 4:resourceClaims/[PodGroupClaim] 5:disruptionMode"
        " 6:priorityClassName 7:priority/int"
    ),
    "PodGroupTemplateReference": "1:workload/PodGroupTemplateName",
    "PodGroupTemplateName": "1:workloadName 2:podGroupTemplateName",
    "PodGroupPolicy": "1:basic/BasicPolicy 2:gang/GangPolicy",
    "BasicPolicy": "",
    "GangPolicy": "1:minCount/int",
    "PodGroupConstraints": "1:topology/[TopologyConstraint]",
    "TopologyConstraint": "1:key",
    "PodGroupClaim": "1:name 2:resourceClaimName 3:resourceClaimTemplateName",
    "GroupWorkload": "1:metadata/ObjectMeta 2:spec/GroupWorkloadSpec",
    "GroupWorkloadSpec": (
        "1:controllerRef/TypedLocalObjectReference 2:podGroupTemplates/[PodGroupTemplate]"
    ),
    "TypedLocalObjectReference": "1:apiGroup 2:kind 3:name",
    "PodGroupTemplate": (
        "1:name 2:schedulingPolicy/PodGroupPolicy 3:schedulingConstraints/PodGroupConstraints"
        " 4:resourceClaims/[PodGroupClaim] 5:disruptionMode 6:priorityClassName 7:priority/int"
    ),
    "PriorityClass": "1:metadata/ObjectMeta 2:value/int 3:globalDefault/bool 4:description 5:preemptionPolicy",
}
