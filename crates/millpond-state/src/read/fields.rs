//! Names of the fields of kinds that people write, to find those that are misspelt.
//!
//! The table has one line per type: its fields, and after a colon the type of those that are looked into. A list is
//! looked into like its entries. What has no line (`status`, a probe, a map of labels) is not looked into.

use std::collections::HashMap;
use std::sync::LazyLock;

use millpond_api::spelling::nearest;

use super::tree::{Key, Position, Tree, Value};
use crate::objects::{ClassKind, Kind};

const TABLE: &str = "
Pod apiVersion kind metadata:Meta spec:PodSpec status
Workload apiVersion kind metadata:Meta spec:WorkloadSpec status
Job apiVersion kind metadata:Meta spec:JobSpec status
Meta name generateName namespace labels annotations uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds ownerReferences finalizers managedFields selfLink
WorkloadSpec replicas selector:LabelSelector template:Template minReadySeconds strategy updateStrategy revisionHistoryLimit paused progressDeadlineSeconds serviceName volumeClaimTemplates:ClaimTemplate podManagementPolicy persistentVolumeClaimRetentionPolicy ordinals
JobSpec parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy backoffLimit backoffLimitPerIndex maxFailedIndexes selector:LabelSelector manualSelector template:Template ttlSecondsAfterFinished completionMode suspend podReplacementPolicy managedBy
Template metadata:Meta spec:PodSpec
PodSpec volumes:Volume initContainers:Container containers:Container ephemeralContainers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain affinity:Affinity schedulerName tolerations:Toleration hostAliases priorityClassName priority dnsConfig readinessGates runtimeClassName enableServiceLinks preemptionPolicy overhead topologySpreadConstraints:Spread setHostnameAsFQDN os hostUsers schedulingGates:Gate resourceClaims resources:Resources hostnameOverride schedulingGroup workloadRef
Container name image command args workingDir ports:Port envFrom env resources:Resources resizePolicy restartPolicy restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty
Resources limits requests claims
Port name hostPort containerPort protocol hostIP
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity
NodeAffinity requiredDuringSchedulingIgnoredDuringExecution:NodeSelector preferredDuringSchedulingIgnoredDuringExecution:PreferredTerm
NodeSelector nodeSelectorTerms:NodeTerm
NodeTerm matchExpressions:Expression matchFields:Expression
PreferredTerm weight preference:NodeTerm
Expression key operator values
PodAffinity requiredDuringSchedulingIgnoredDuringExecution:PodTerm preferredDuringSchedulingIgnoredDuringExecution:WeightedTerm
PodTerm labelSelector:LabelSelector namespaces topologyKey namespaceSelector:LabelSelector matchLabelKeys mismatchLabelKeys
WeightedTerm weight podAffinityTerm:PodTerm
LabelSelector matchLabels matchExpressions:Expression
Spread maxSkew topologyKey whenUnsatisfiable labelSelector:LabelSelector minDomains nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys
Toleration key operator value effect tolerationSeconds
Gate name
Volume name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs persistentVolumeClaim:ClaimVolume rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume quobyte azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral:Ephemeral image
ClaimVolume claimName readOnly
Ephemeral volumeClaimTemplate:ClaimTemplate
ClaimTemplate apiVersion kind metadata:Meta spec:ClaimSpec status
Claim apiVersion kind metadata:Meta spec:ClaimSpec status
ClaimSpec accessModes selector:LabelSelector resources:Resources volumeName storageClassName volumeMode dataSource dataSourceRef volumeAttributesClassName
StorageClass apiVersion kind metadata:Meta provisioner parameters reclaimPolicy mountOptions allowVolumeExpansion volumeBindingMode allowedTopologies:Topology
Topology matchLabelExpressions:TopologyKey
TopologyKey key values
PriorityClass apiVersion kind metadata:Meta value globalDefault description preemptionPolicy
StoredTemplate apiVersion kind metadata:Meta template:Template
LimitRange apiVersion kind metadata:Meta spec:LimitRangeSpec
LimitRangeSpec limits:LimitRangeItem
LimitRangeItem type max min default defaultRequest maxLimitRequestRatio
Buffer apiVersion kind metadata:Meta spec:BufferSpec status
BufferSpec provisioningStrategy podTemplateRef:LocalRef scalableRef:ScalableRef replicas percentage limits
LocalRef name
ScalableRef apiGroup kind name
Overlay apiVersion kind metadata:Meta spec:OverlaySpec status
OverlaySpec requirements:Expression price priceAdjustment surcharge capacity weight
Budget apiVersion kind metadata:Meta spec:BudgetSpec status
BudgetSpec minAvailable maxUnavailable selector:LabelSelector unhealthyPodEvictionPolicy
NodePool apiVersion kind metadata:Meta spec:NodePoolSpec status
NodePoolSpec template:NodeTemplate disruption:Disruption limits weight replicas
NodeTemplate metadata:TemplateMeta spec:NodeTemplateSpec
TemplateMeta labels annotations
NodeTemplateSpec requirements:PoolRequirement taints:Taint startupTaints:Taint nodeClassRef:ClassRef expireAfter terminationGracePeriod
PoolRequirement key operator values minValues
Taint key value effect timeAdded
ClassRef group kind name
Disruption consolidateAfter consolidationPolicy budgets:DisruptionBudget
DisruptionBudget nodes schedule timeZone duration reasons
NodeClaim apiVersion kind metadata:Meta spec:NodeClaimSpec status
NodeClaimSpec requirements:PoolRequirement taints:Taint startupTaints:Taint resources:Resources nodeClassRef:ClassRef expireAfter terminationGracePeriod
NodeClass apiVersion kind metadata:Meta spec:NodeClassSpec status
NodeClassSpec provider catalog overlays kubelet:Kubelet backoff:Backoff sim:SimScript
Backoff initial max
SimScript seed image registrationDelay registrationJitter registrationFailures shutdown stockOuts:SimStockOut quotas:SimQuota calls:SimCall throttle:SimThrottle lag:SimLag interruptions:SimInterruption
SimStockOut instanceType zone capacityType from until share period stock
SimQuota instanceType zone capacityType instances vcpus
SimCall verbs from until share nth delay error retryAfter lost
SimThrottle perSecond burst
SimLag get list
SimInterruption instanceType zone capacityType at share perHour notice nodeGone
Kubelet maxPods podsPerCore systemReserved kubeReserved evictionHard evictionSoft evictionSoftGracePeriod evictionMaxPodGracePeriod imageGCHighThresholdPercent imageGCLowThresholdPercent cpuCFSQuota clusterDNS
Constraint apiVersion kind metadata:Meta spec:ConstraintSpec status
ConstraintSpec consumerID defaultBackoffPolicy scaleInPolicy nodePools:AdvisorPool
AdvisorPool name region availabilityZones labels annotations taints:Taint quota priority nodeTemplates:AdvisorTemplate scaleInPolicy defaultBackoffPolicy min
AdvisorTemplate name architecture instanceType capacity kubeReservedCapacity systemReservedCapacity maxVolumes priority
";

/// A field and the type of what is in it.
type Fields = Vec<(&'static str, Option<&'static str>)>;

static TYPES: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter_map(|line| line.split_once(' '));
    let fields = |fields: &'static str| {
        let fields = fields.split_whitespace();
        fields.map(|field| field.split_once(':').map_or((field, None), |(name, of)| (name, Some(of)))).collect()
    };
    lines.map(|(name, list)| (name, fields(list))).collect()
});

/// The line of the table for a kind; `None` for kinds that users do not write.
fn type_of(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Pod => "Pod",
        Kind::DaemonSet | Kind::ReplicaSet | Kind::Deployment | Kind::StatefulSet => "Workload",
        Kind::Job => "Job",
        Kind::PersistentVolumeClaim => "Claim",
        Kind::StorageClass => "StorageClass",
        Kind::PriorityClass => "PriorityClass",
        Kind::PodDisruptionBudget => "Budget",
        Kind::PodTemplate => "StoredTemplate",
        Kind::LimitRange => "LimitRange",
        Kind::CapacityBuffer => "Buffer",
        Kind::NodeOverlay => "Overlay",
        Kind::NodePool => "NodePool",
        Kind::NodeClaim => "NodeClaim",
        Kind::NodeClass(ClassKind::Millpond) => "NodeClass",
        Kind::ScalingConstraint => "Constraint",
        Kind::Node
        | Kind::Namespace
        | Kind::PersistentVolume
        | Kind::CsiNode
        | Kind::ConfigMap
        | Kind::ClusterLimits
        | Kind::ScalingFeedback
        | Kind::ClusterApi(_)
        | Kind::NodeClass(_) => return None,
    })
}

/// A field that no such object has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) place: Position,
    pub(crate) field: String,
    /// A field of a like name.
    pub(crate) like: Option<&'static str>,
}

/// The fields of an object that its kind does not have.
pub(crate) fn unknown(kind: Kind, tree: &Tree<'_>) -> Vec<Unknown> {
    let mut found = Vec::new();
    if let Some(of) = type_of(kind) {
        look(of, tree, "", &mut found);
    }
    found
}

fn look(of: &'static str, tree: &Tree<'_>, path: &str, found: &mut Vec<Unknown>) {
    match &tree.value {
        Value::Scalar(_) => {}
        Value::List(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                look(of, entry, &format!("{path}[{index}]"), found);
            }
        }
        Value::Map(entries) => {
            let Some(fields) = TYPES.get(of) else { return };
            for (Key { place, text }, value) in entries {
                let known = fields.iter().find(|(name, _)| *name == text);
                let field = || if path.is_empty() { text.to_string() } else { format!("{path}.{text}") };
                match known {
                    Some((_, Some(of))) => look(of, value, &field(), found),
                    Some((_, None)) => {}
                    None => {
                        let like = nearest(text, fields.iter().map(|(name, _)| *name));
                        found.push(Unknown { place: *place, field: field(), like });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_is_named_has_a_line() {
        for (of, fields) in TYPES.iter() {
            for inner in fields.iter().filter_map(|(_, inner)| *inner) {
                assert!(TYPES.contains_key(inner), "{of} names {inner}");
            }
        }
    }
}
