//! Values that the chart is tried with: what each must render to, and which are refused.

mod compute_domains;
mod examples;
mod translation;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::helm::Helm;

/// A value that the chart must refuse, and what helm says about it.
pub(super) struct Refused {
    /// Arguments of `helm template`.
    arguments: [&'static str; 2],
    /// Part of helm's message by which a person finds the value.
    message: &'static str,
}

/// Typos, wrong types and values that would only fail on the node.
pub(super) const REFUSED: [Refused; 64] = [
    set("agnet.enabled=true", "additional properties 'agnet' not allowed"),
    set("agent.tolerations[0].kye=x", "additional properties 'kye' not allowed"),
    set("imagePullSecrets[0]=x", "'/imagePullSecrets/0': got string, want object"),
    set(
        "rbac.viewer.subjects[0].kind=Team",
        "'/rbac/viewer/subjects/0/kind': value must be one of",
    ),
    set("agent.owner=two words", "'/agent/owner': 'two words' does not match"),
    set("agent.migManager.config.name=a", "agent.migManager.enabled is false"),
    set("agent.migManager.reset=node", "/agent/migManager/reset"),
    set(
        "agent.migManager.enabled=true,agent.migManager.config.layouts.a={}",
        "/agent/migManager/config/layouts/a/0': got string",
    ),
    set("agent.featureLabels=nodes", "'/agent/featureLabels': value must be one of"),
    set("agent.mps.enabled=maybe", "'/agent/mps/enabled': got string, want boolean"),
    set("agent.gpuShares=0", "/agent/gpuShares"),
    set("agent.mode=both", "'/agent/mode': value must be one of"),
    set(
        "agent.devicePlugin.config.fallbackStrategies={first}",
        "/config/fallbackStrategies/0': value must be one of",
    ),
    set(
        "agent.devicePlugin.config.name=a,agent.devicePlugin.config.map.b=c",
        "agent.devicePlugin.config has both a name and a map",
    ),
    set("agent.devicePlugin.config.default=a", "agent.devicePlugin.config.map does not have"),
    set("discover.enabled=maybe", "'/discover/enabled': got string, want boolean"),
    set("discover.interval=1m", "'/discover': additional properties 'interval' not allowed"),
    set("image.digest=sha256:12", "'/image/digest': 'sha256:12' does not match"),
    set("image.pullPolicy=Sometimes", "'/image/pullPolicy': value must be one of"),
    set("agent.kubeletRoot=var/lib", "'/agent/kubeletRoot': 'var/lib' does not match"),
    set("agent.hookDir=/", "'/agent/hookDir': '/' does not match"),
    set("agent.adminPort=0", "'/agent/adminPort': minimum: got 0, want 1"),
    set("agent.metricsAccess=me", "'/agent/metricsAccess': value must be one of"),
    set("scheduler.metricsAccess=me", "'/scheduler/metricsAccess': value must be one of"),
    set("agent.updateStrategy.rollingUpdate.maxSurge=one", "/maxSurge': 'one' does not match"),
    set("scheduler.replicas=-1", "'/scheduler/replicas': minimum: got -1, want 0"),
    set("monitoring.prometheusRule.runbookUrl=foo", "'/monitoring/prometheusRule/runbookUrl'"),
    set("monitoring.prometheusRule.enabled=true", "set monitoring.podMonitor.enabled"),
    set("scheduler.name=My Scheduler", "'/scheduler/name': 'My Scheduler' does not match"),
    set("scheduler.resorces.cpu=1", "additional properties 'resorces' not allowed"),
    set("serviceAccount.name=Octavo", "'/serviceAccount/name': 'Octavo' does not match"),
    set("agent.memorySwap=processes", "set agent.timeEnforcement to leases"),
    set("agent.swapHostMemory=1Gi", "agent.memorySwap is off"),
    set("agent.swapHostMemory=much", "'/agent/swapHostMemory'"),
    set("agent.exemptNamespaces={Kube}", "'/agent/exemptNamespaces/0'"),
    set("agent.wall=guard", "agent.wall is now agent.memoryEnforcement"),
    set("agent.devRoot=/", "agent.devRoot is gone"),
    set("agent.privileged=true", "agent.privileged is gone"),
    set("agent.runtimeClassName=nvidia", "agent.runtimeClassName is gone"),
    set("deviceClasses.gpuExtendedResourceName=gpu", "'/deviceClasses/gpuExtendedResourceName'"),
    set("computeDomain.enabled=true", "additional properties 'computeDomain' not allowed"),
    set("computeDomains.enabled=some", "'/computeDomains/enabled': got string, want boolean"),
    set("computeDomains.crds.keep=true", "'/computeDomains/crds': additional properties 'keep'"),
    set(
        "computeDomains.maxNodesPerImexDomain=0",
        "/maxNodesPerImexDomain': minimum: got 0, want 1",
    ),
    set("computeDomains.imex.mode=none", "'/computeDomains/imex/mode': value must be one of"),
    set("computeDomains.imex.isolation=none", "/imex/isolation': value must be one of"),
    set("computeDomains.imex.encryption=on", "/imex/encryption': got string, want boolean"),
    set(
        "computeDomains.imex.mode=hostManaged,computeDomains.imex.encryption=true",
        "encryption is of the controller's daemons",
    ),
    set("computeDomains.imex.hostSocketPath=s", "/imex/hostSocketPath': 's' does not match"),
    set("computeDomains.imex.hostSocketPath=/s", "the host's service is not asked then"),
    set(
        "computeDomains.imex.mode=hostManaged,computeDomains.imex.isolation=channel",
        "isolation: channel needs daemons of the controller",
    ),
    set("computeDomains.controller.replicas=-1", "/controller/replicas': minimum: got -1, want 0"),
    set("computeDomains.controller.config.a=b", "additional properties 'config' not allowed"),
    set(
        "computeDomains.controller.metricsAccess=me",
        "'/computeDomains/controller/metricsAccess': value must be one of",
    ),
    set("computeDomains.controller.metricsPort=0", "/controller/metricsPort': minimum: got 0"),
    set("computeDomains.daemon.serviceAccount.name=A", "/serviceAccount/name': 'A' does not match"),
    set("computeDomains.daemon.resources.claims=a", "additional properties 'claims' not allowed"),
    set("health.enabled=maybe", "'/health/enabled': got string, want boolean"),
    set(
        "health.enabled=false,scheduler.config.repairBy=Controller",
        "no program deletes members of gangs on lost nodes then",
    ),
    set("translation.enabled=on", "'/translation/enabled': got string, want boolean"),
    set("translation.collectAfterSeconds=5", "/collectAfterSeconds': minimum: got 5, want 600"),
    set(
        "translation.excludedNamespaces[0]=A",
        "'/translation/excludedNamespaces/0': 'A' does not match",
    ),
    set(
        "translation.models[0].productName=L4",
        "'/translation/models/0': missing property 'memory'",
    ),
    Refused { arguments: ["--kube-version", "1.33.0"], message: "requires kubeVersion: >=1.34" },
];

const fn set(value: &'static str, message: &'static str) -> Refused {
    Refused { arguments: ["--set", value], message }
}

impl Refused {
    /// Renders the chart with the value: it must fail, and for the right reason.
    pub(super) fn check(&self, helm: &Helm, chart: &Path) -> anyhow::Result<()> {
        let given = self.arguments.join(" ");
        let output = helm.render(chart, self.arguments.map(OsStr::new))?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "the chart accepts `{given}`; it must refuse it");
        ensure!(
            message.contains(self.message),
            "the chart refuses `{given}`, but not with `{}`:\n{message}",
            self.message
        );
        Ok(())
    }
}

/// The files of values that the chart is rendered with, in the order of their names.
pub(super) fn variants(chart: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in [chart.join("ci"), chart.join("../../examples/operator")] {
        let read = || -> std::io::Result<Vec<PathBuf>> {
            fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        let found = read().with_context(|| format!("cannot read {}", folder.display()))?;
        let is_values = |path: &PathBuf| path.to_string_lossy().ends_with("-values.yaml");
        let mut found: Vec<PathBuf> = found.into_iter().filter(is_values).collect();
        found.sort();
        ensure!(!found.is_empty(), "{} holds no values to render the chart with", folder.display());
        files.append(&mut found);
    }
    Ok(files)
}

/// What the objects rendered with one of the files must be.
pub(super) fn expectation(values: &Path, objects: &[Value]) -> anyhow::Result<()> {
    let name = values.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let facts = match name {
        "default-values.yaml" => {
            let facts = both(default_facts(), compute_domains::default_facts());
            both(facts, translation::default_facts())
        }
        "foreign-crds-values.yaml" => compute_domains::foreign_crds_facts(),
        "host-imex-values.yaml" => compute_domains::host_imex_facts(),
        "without-compute-domains-values.yaml" => compute_domains::disabled_facts(),
        "without-policies-values.yaml" => compute_domains::without_policies_facts(),
        "without-both-values.yaml" => without_both_facts(),
        "real-node-values.yaml" => real_node_facts(),
        "every-value-values.yaml" => {
            let facts = both(every_value_facts(), compute_domains::every_value_facts());
            both(facts, translation::every_value_facts())
        }
        "lab-values.yaml" => both(lab_facts(), compute_domains::lab_facts()),
        "translation-values.yaml" => translation::alone_facts(),
        "unavailable-values.yaml" => unavailable_facts(),
        "time-slicing-values.yaml" => examples::time_slicing_facts(),
        "mixed-mig-values.yaml" => examples::mixed_mig_facts(),
        "mps-values.yaml" => examples::mps_facts(),
        "nothing-values.yaml" => {
            ensure!(objects.is_empty(), "{name}: everything is off, yet objects are rendered");
            return Ok(());
        }
        _ => bail!("{name}: nothing is known of what it must render to; add it to chart/cases.rs"),
    };
    for Fact { kind, pointer, expected } in facts {
        let (kind_of, wanted) =
            kind.split_once('/').map_or((kind, None), |(kind, name)| (kind, Some(name)));
        let is_it = |object: &&Value| {
            let is_named = |name: &str| object["metadata"]["name"] == name;
            object["kind"] == kind_of && wanted.is_none_or(is_named)
        };
        let object = objects.iter().find(is_it);
        let found = object.and_then(|object| object.pointer(pointer)).unwrap_or(&Value::Null);
        ensure!(*found == expected, "{name}: {kind}{pointer} is {found} and not {expected}");
    }
    Ok(())
}

/// What lies at a place in the first object of a kind, or in the one of a kind and name (`Role/viewer`);
/// null: nothing does.
struct Fact {
    kind: &'static str,
    pointer: &'static str,
    expected: Value,
}

const fn fact(kind: &'static str, pointer: &'static str, expected: Value) -> Fact {
    Fact { kind, pointer, expected }
}

fn both(mut facts: Vec<Fact>, more: Vec<Fact>) -> Vec<Fact> {
    facts.extend(more);
    facts
}

const CONTEXT: &str = "/spec/template/spec/containers/0/securityContext";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const KEPT: &str = "/metadata/annotations/helm.sh~1resource-policy";
/// A word of a program's command: its second option.
const OPTION: &str = "/spec/template/spec/containers/0/command/3";
const POLICIES: &str = "CustomResourceDefinition/placementpolicies.octavo.dev";
const SCHEDULER: &str = "octavo-scheduler";
const RUNTIME: &str = "/spec/template/spec/runtimeClassName";

/// The agent's config file with every folder moved: the keys are those of the agent's `NodeFile`.
const AGENT_CONFIG: &str = "\
driverRoot: \"/opt/nvidia\"
driverRootSeen: \"/driver-root/nvidia\"
procRoot: /proc
sysRoot: /host/sys
kubeletRoot: \"/var/lib/k0s/kubelet/\"
cdiRoot: \"/etc/cdi\"
dynamicMig: [6,7]
owner: \"octavo\"
mode: device-plugin
featureLabels: config
migManager: true
migReset: none
migConfigFile: /etc/octavo-mig/config.yaml
devicePlugin:
  configFolder: /etc/octavo-device-plugin
  defaultConfig: \"default\"
  fallback: [\"single\"]
  flags: {\"device-id-strategy\":\"index\"}
cgroupRoot: /host/sys/fs/cgroup
shareTmpfs: true
gpuShares: \"4\"
memoryEnforcement: \"guard\"
timeEnforcement: \"leases\"
memorySwap: \"processes\"
swapHostMemory: \"256Gi\"
exemptNamespaces: [\"kube-system\"]
kernelLog: \"/driver-root/var/log/kern.log\"
minOverflowPolicy: Hold
watchInterval: \"1s\"
mounts: [{\"containerPath\":\"/opt/tools\",\"hostPath\":\"/opt/tools\",\"readOnly\":false}]
hookDirSeen: /host/hook-dir
hookDir: \"/home/kubernetes/bin\"
computeDomains: true
daemonNamespace: \"octavo-system\"
imex:
  mode: driverManaged
  isolation: channel
";

/// The scheduler's config file.
const SCHEDULER_CONFIG: &str = "\
schedulerName: \"octavo\"
leaderElection:
  enabled: true
  namespace: \"octavo-system\"
  name: \"octavo-scheduler\"
repairBy: Controller
";

/// When the scheduler of this release has no leader: one of another release counts as none.
const NO_LEADER: &str = "\
(count_over_time((max(octavo_scheduler_leader{job=\"octavo-system/octavo-gpus-scheduler\"}) == 1)\
[10m:1m]) or vector(0)) < 5";

/// The policy that keeps claims to the largest share of their class.
const SHARE_CLASSES: &str = "ValidatingAdmissionPolicy/octavo-shareclasses";

fn default_facts() -> Vec<Fact> {
    let privileged = json!({"privileged": true, "readOnlyRootFilesystem": true, "runAsUser": 0});
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let image = format!("octavo/octavo:{}", env!("CARGO_PKG_VERSION"));
    vec![
        fact("DaemonSet", CONTEXT, privileged),
        fact("DaemonSet", RUNTIME, Value::Null),
        fact("PrometheusRule", "", Value::Null),
        fact(SHARE_CLASSES, "/spec/failurePolicy", json!("Fail")),
        fact(SHARE_CLASSES, "/spec/paramKind/kind", json!("DeviceClass")),
        fact("DaemonSet", "/spec/template/spec/hostPID", json!(true)),
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/volumeMounts/8",
            json!({"name": "sys", "mountPath": "/host/sys", "readOnly": true}),
        ),
        // The mounts of a driver's container that starts again are seen.
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/volumeMounts/10/name",
            json!("driver-root"),
        ),
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/volumeMounts/10/mountPropagation",
            json!("HostToContainer"),
        ),
        // No pod reads the names of claims, unless Prometheus does.
        fact("DaemonSet", OPTION, json!("--metrics-access=loopback")),
        fact(
            "Deployment/octavo-scheduler",
            "/spec/template/spec/containers/0/command/4",
            json!("--metrics-access=loopback"),
        ),
        // Two pods are on a node while one replaces another: no port of the node may be theirs.
        fact("DaemonSet", "/spec/template/spec/hostNetwork", Value::Null),
        fact("DaemonSet", "/spec/template/spec/containers/0/ports/0/hostPort", Value::Null),
        fact(
            "DaemonSet",
            "/spec/updateStrategy/rollingUpdate",
            json!({"maxSurge": "10%", "maxUnavailable": 0}),
        ),
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/env/1",
            json!({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}),
        ),
        fact("DaemonSet", IMAGE, json!(image)),
        // What the restricted Pod Security Standard asks for.
        fact("Deployment/octavo-scheduler", CONTEXT, restricted),
        fact(
            "Deployment/octavo-scheduler",
            "/spec/template/spec/securityContext",
            json!({
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
        ),
        fact("Deployment/octavo-scheduler", "/spec/template/spec/hostPID", Value::Null),
        fact("Deployment/octavo-scheduler", "/spec/template/spec/hostNetwork", Value::Null),
        fact(
            "Deployment/octavo-scheduler",
            "/spec/template/spec/volumes/0/configMap/name",
            json!(SCHEDULER),
        ),
        fact("Deployment/octavo-scheduler", "/spec/template/spec/volumes/1", Value::Null),
        fact("Deployment/octavo-scheduler", "/spec/replicas", json!(2)),
        fact(
            "Deployment/octavo-scheduler",
            "/spec/template/spec/serviceAccountName",
            json!(SCHEDULER),
        ),
        fact("PodDisruptionBudget/octavo-scheduler", "/spec/maxUnavailable", json!(1)),
        fact("Role/octavo-scheduler", "/rules/1/resourceNames", json!([SCHEDULER])),
        fact("ClusterRole/octavo-scheduler", "/rules/12/resources", json!(["nodehealths"])),
        fact("ClusterRole/octavo-scheduler", "/rules/12/verbs", json!(["get", "list", "watch"])),
        fact("ClusterRole/octavo-scheduler", "/rules/13/resources", json!(["maintenances"])),
        fact("ClusterRole/octavo-scheduler", "/rules/13/verbs", json!(["get", "list", "watch"])),
        fact("DeviceClass", "/spec/extendedResourceName", json!("nvidia.com/gpu")),
        fact(POLICIES, "/spec/group", json!("octavo.dev")),
        fact(POLICIES, KEPT, json!("keep")),
        fact("ValidatingAdmissionPolicy", "/spec/failurePolicy", json!("Fail")),
        fact("ValidatingAdmissionPolicy/octavo-runtimeclass", "", Value::Null),
        fact("ValidatingAdmissionPolicyBinding", "/spec/validationActions", json!(["Deny"])),
        fact("PodMonitor", "", Value::Null),
        fact("NetworkPolicy/octavo-agent", "", Value::Null),
        fact("DaemonSet/octavo-discover", "", Value::Null),
        fact("ClusterRole/octavo-discover", "", Value::Null),
        fact("RoleBinding/octavo-agent-scc", "", Value::Null),
        // Only named accounts get rights.
        fact("Role/octavo-figures", "", Value::Null),
        fact("RoleBinding/octavo-figures", "", Value::Null),
    ]
}

fn real_node_facts() -> Vec<Fact> {
    vec![
        fact("DaemonSet", IMAGE, json!("octavo.dev/lab/octavo:1")),
        fact("DaemonSet", "/spec/template/spec/nodeSelector", json!({"octavo.dev/lab": "real"})),
        fact("Deployment/octavo-scheduler", "", Value::Null),
    ]
}

fn every_value_facts() -> Vec<Fact> {
    let digest = "0123456789abcdef".repeat(4);
    let image = format!("registry.example.com:5000/mirror/octavo@sha256:{digest}");
    let condition = "request.userInfo.username == 'system:serviceaccount:octavo-system:gpu-agent'";
    vec![
        fact("DaemonSet", IMAGE, json!(image)),
        fact("ConfigMap", "/data/agent.yaml", json!(AGENT_CONFIG)),
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/command/2",
            json!("--admin-address=:9999"),
        ),
        fact("DaemonSet", OPTION, json!("--metrics-access=everyone")),
        fact("Deployment/octavo-gpus-scheduler", "/spec/replicas", json!(3)),
        fact(
            "Deployment/octavo-gpus-scheduler",
            "/spec/template/spec/affinity",
            json!({"nodeAffinity": {}}),
        ),
        fact("Deployment/octavo-gpus-scheduler", OPTION, json!("--metrics-listen=:9998")),
        fact("RoleBinding/octavo-gpus-scheduler", "/subjects/0/name", json!("gpu-scheduler")),
        fact("DaemonSet", "/spec/updateStrategy", json!({"type": "OnDelete"})),
        fact(
            "DaemonSet/octavo-gpus-mps-daemon",
            OPTION,
            json!("--driver-root=/driver-root/nvidia"),
        ),
        fact("PrometheusRule", "/metadata/name", json!("octavo-gpus-alerts")),
        fact("PrometheusRule", "/spec/groups/2/rules/0/expr", json!(NO_LEADER)),
        fact(
            "DaemonSet/octavo-gpus-discover",
            "/spec/template/spec/tolerations",
            json!([{"key": "gpu", "operator": "Exists"}]),
        ),
        // It has one right, which the policy limits to one label of its own node.
        fact(
            "ClusterRole/octavo-gpus-discover",
            "/rules",
            json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]),
        ),
        fact("ClusterRoleBinding/octavo-gpus-discover", "/subjects/0/name", json!("gpu-discover")),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-nodelabel",
            "/spec/matchConditions/0/expression",
            json!(format!("{condition} || {}", condition.replace("agent", "discover"))),
        ),
        fact("DeviceClass", "/spec/extendedResourceName", Value::Null),
        fact(POLICIES, KEPT, Value::Null),
        fact("ClusterRoleBinding", "/subjects/0/name", json!("gpu-agent")),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-runtimeclass",
            "/spec/validations/0/expression",
            json!("!(object.spec.?runtimeClassName.orValue('') in ['nvidia','nvidia-legacy'])"),
        ),
        // The policy applies to the account of the agent.
        fact("ValidatingAdmissionPolicy", "/spec/matchConditions/0/expression", json!(condition)),
        fact("NetworkPolicy/octavo-gpus-agent", "/spec/ingress/0/ports/0/port", json!(9999)),
        fact("NetworkPolicy/octavo-gpus-scheduler", "/spec/ingress/0/ports/0/port", json!(9998)),
        fact(
            "RoleBinding/octavo-gpus-agent-scc",
            "/roleRef/name",
            json!("system:openshift:scc:privileged"),
        ),
        fact(
            "RoleBinding/octavo-gpus-nonroot-scc",
            "/roleRef/name",
            json!("system:openshift:scc:nonroot-v2"),
        ),
        fact("PodMonitor", "/spec/podMetricsEndpoints/0/interval", json!("1m30s")),
        fact("Role/octavo-gpus-figures", "/rules/0/resources", json!(["pods/proxy"])),
        fact("Role/octavo-gpus-figures", "/rules/0/verbs", json!(["get"])),
        fact("Role/octavo-gpus-figures", "/metadata/namespace", json!("octavo-system")),
        fact("RoleBinding/octavo-gpus-figures", "/subjects/0/name", json!("gpu-users")),
    ]
}

/// Without a policy and without need, an agent has no right to change nodes.
fn without_both_facts() -> Vec<Fact> {
    vec![
        fact("ValidatingAdmissionPolicy", "", Value::Null),
        fact("ClusterRole/octavo-agent", "/rules/4/verbs", json!(["get", "list", "watch"])),
        fact("ClusterRole/octavo-agent", "/rules/5/resources", json!(["events"])),
    ]
}

/// The API server refuses a `DaemonSet` with both: the default's surge must give way.
fn unavailable_facts() -> Vec<Fact> {
    let expected = json!({"maxSurge": 0, "maxUnavailable": 1});
    vec![fact("DaemonSet", "/spec/updateStrategy/rollingUpdate", expected)]
}

fn lab_facts() -> Vec<Fact> {
    vec![
        fact("DaemonSet", "", Value::Null),
        fact(POLICIES, "/spec/group", json!("octavo.dev")),
        fact("ConfigMap/octavo-scheduler", "/data/scheduler.yaml", json!(SCHEDULER_CONFIG)),
        fact("RoleBinding/octavo-scheduler", "/subjects/0/name", json!(SCHEDULER)),
        fact("ServiceAccount", "/metadata/name", json!("octavo-agent")),
        fact("ClusterRoleBinding", "/subjects/0/namespace", json!("octavo-system")),
        fact("DeviceClass", "/metadata/name", json!("gpu.nvidia.com")),
        fact("ValidatingAdmissionPolicy", "/metadata/name", json!("octavo-resourceslices")),
    ]
}
