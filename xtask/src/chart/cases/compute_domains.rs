//! What `ComputeDomains` render to.

use serde_json::{Value, json};

use super::{CONTEXT, Fact, KEPT, fact};

const DOMAINS: &str = "CustomResourceDefinition/computedomains.resource.nvidia.com";
const CLIQUES: &str = "CustomResourceDefinition/computedomaincliques.resource.nvidia.com";
const CHANNEL_CLASS: &str = "DeviceClass/compute-domain-default-channel.nvidia.com";
const DAEMON_CLASS: &str = "DeviceClass/compute-domain-daemon.nvidia.com";
const EXPRESSION: &str = "/spec/selectors/0/cel/expression";
const CONDITION: &str = "/spec/matchConditions/0/expression";
const SUBJECT: &str = "/subjects/0/name";
const COMMAND: &str = "/spec/template/spec/containers/0/command";

const DAEMON_CLAIMS: &str = "ValidatingAdmissionPolicy/octavo-daemonclaims";
const NAMESPACES: &str = "/spec/matchConstraints/namespaceSelector/matchExpressions/0/values";

/// The rule for the image of the controller's `DaemonSets`.
const IMAGE: &str = "/spec/validations/1/expression";

/// The rule of a policy for the drivers of slices.
const DRIVERS: &str = "/spec/validations/5/expression";

/// The controller's config file: the keys are those of its `Config`.
const CONFIG: &str = "\
namespace: \"octavo-system\"
maxNodesPerImexDomain: 18
imex:
  mode: driverManaged
  isolation: domain
  encryption: false
daemon:
  image: \"octavo/octavo:VERSION\"
  imagePullPolicy: IfNotPresent
  resources:
    requests: {\"cpu\":\"100m\",\"memory\":\"128Mi\"}
    limits: {\"cpu\":\"100m\",\"memory\":\"128Mi\"}
  logLevel: \"info\"
  serviceAccountName: \"octavo-imex-daemon\"
  priorityClassName: \"system-node-critical\"
health:
  enabled: true
  repair: {afterSeconds: 60, schedulerName: \"octavo\"}
leaderElection:
  enabled: true
  namespace: \"octavo-system\"
  name: \"octavo-controller\"
";

/// The same with everything set: amounts are text, also where the value is a number.
const EVERY_CONFIG: &str = "\
namespace: \"octavo-system\"
maxNodesPerImexDomain: 36
imex:
  mode: driverManaged
  isolation: channel
  encryption: true
daemon:
  image: \"registry.example.com:5000/mirror/octavo@sha256:DIGEST\"
  imagePullPolicy: Always
  imagePullSecrets: [{\"name\":\"registry-credentials\"}]
  resources:
    requests: {\"cpu\":\"1\",\"memory\":\"256Mi\"}
    limits: {\"cpu\":\"1\",\"memory\":\"256Mi\"}
  logLevel: \"debug\"
  serviceAccountName: \"gpu-imex-daemon\"
  priorityClassName: \"gpu-critical\"
translation:
  enabled: true
  listen: \":9444\"
  hosts: [\"octavo-gpus-controller-webhook.octavo-system.svc\"]
  secretName: \"octavo-gpus-controller-webhook\"
  webhookName: \"octavo-gpus-translation\"
  schedulerName: \"gpus\"
  models: [{\"memory\":\"23034Mi\",\"productName\":\"NVIDIA L4\"}]
  collectAfterSeconds: 600
  drainSeconds: 3
health:
  enabled: true
  repair: {afterSeconds: 60, schedulerName: \"gpus\"}
leaderElection:
  enabled: true
  namespace: \"octavo-system\"
  name: \"octavo-gpus-controller\"
";

/// The config file of agents that ask a service of the host.
const HOST_AGENT_CONFIG: &str = "\
driverRoot: \"/\"
driverRootSeen: \"/driver-root\"
procRoot: /proc
sysRoot: /host/sys
kubeletRoot: \"/var/lib/kubelet\"
cdiRoot: \"/var/run/cdi\"
dynamicMig: \"none\"
mode: dra
featureLabels: none
cgroupRoot: /host/sys/fs/cgroup
shareTmpfs: true
gpuShares: \"memory\"
memoryEnforcement: \"auto\"
timeEnforcement: \"off\"
memorySwap: \"off\"
kernelLog: \"/dev/kmsg\"
minOverflowPolicy: Kill
watchInterval: \"200ms\"
hookDirSeen: /host/hook-dir
hookDir: \"/opt/octavo/bin\"
computeDomains: true
daemonNamespace: \"octavo-system\"
imex:
  mode: hostManaged
  isolation: domain
  hostSocketPath: \"/run/imex/ctrl.sock\"
";

pub(super) fn default_facts() -> Vec<Fact> {
    let mut facts = rights();
    facts.extend(objects());
    facts
}

fn objects() -> Vec<Fact> {
    let config = CONFIG.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let channel = "device.driver == 'compute-domain.nvidia.com' \
        && device.attributes['compute-domain.nvidia.com'].type == 'channel' \
        && device.attributes['compute-domain.nvidia.com'].id == 0";
    let daemon = "device.driver == 'compute-domain.nvidia.com' \
        && device.attributes['compute-domain.nvidia.com'].type == 'daemon'";
    let command = json!([
        "octavo",
        "controller",
        "--config=/etc/octavo/controller.yaml",
        "--metrics-listen=:9480",
        "--metrics-access=loopback",
    ]);
    vec![
        fact(DOMAINS, KEPT, json!("keep")),
        fact(CLIQUES, KEPT, json!("keep")),
        fact(CHANNEL_CLASS, EXPRESSION, json!(channel)),
        fact(DAEMON_CLASS, EXPRESSION, json!(daemon)),
        fact("ConfigMap/octavo-controller", "/data/controller.yaml", json!(config)),
        fact("Deployment/octavo-controller", COMMAND, command),
        fact("Deployment/octavo-controller", "/spec/replicas", json!(2)),
        fact("Deployment/octavo-controller", CONTEXT, restricted),
        fact(
            "Deployment/octavo-controller",
            "/spec/template/spec/securityContext",
            json!({
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
        ),
        fact(
            "Deployment/octavo-controller",
            "/spec/template/spec/serviceAccountName",
            json!("octavo-controller"),
        ),
        fact("PodDisruptionBudget/octavo-controller", "/spec/maxUnavailable", json!(1)),
        fact(
            "DaemonSet",
            "/spec/template/spec/containers/0/volumeMounts/11/mountPath",
            json!("/var/lib/kubelet/plugins/compute-domain.nvidia.com"),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-resourceslices",
            DRIVERS,
            json!("variables.spec.driver in ['gpu.nvidia.com','compute-domain.nvidia.com']"),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-controller-nodelabel",
            CONDITION,
            json!(requester("octavo-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-controller-daemonsets",
            CONDITION,
            json!(requester("octavo-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-controller-daemonsets",
            IMAGE,
            json!(image(&format!("octavo/octavo:{}", env!("CARGO_PKG_VERSION")))),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-cliqueentry",
            CONDITION,
            json!(requester("octavo-imex-daemon")),
        ),
        fact(
            "ValidatingAdmissionPolicyBinding/octavo-cliqueentry",
            "/spec/validationActions/0",
            json!("Deny"),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-controller-templates",
            CONDITION,
            json!(requester("octavo-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-controller-claims",
            CONDITION,
            json!(requester("octavo-controller")),
        ),
        // All users, in all other namespaces.
        fact(DAEMON_CLAIMS, "/spec/failurePolicy", json!("Fail")),
        fact(DAEMON_CLAIMS, NAMESPACES, json!(["octavo-system"])),
        fact(DAEMON_CLAIMS, "/spec/matchConditions/0/name", json!("changes-spec")),
        fact(DAEMON_CLAIMS, "/spec/matchConditions/1/name", json!("names-daemon")),
        fact(DAEMON_CLAIMS, "/spec/matchConditions/2", Value::Null),
        fact(
            "ValidatingAdmissionPolicyBinding/octavo-daemonclaims",
            "/spec/validationActions/0",
            json!("Deny"),
        ),
        fact("ValidatingAdmissionPolicy/octavo-controller-secrets", "", Value::Null),
        fact("NetworkPolicy/octavo-imex-daemon", "", Value::Null),
        fact("SecurityContextConstraints", "", Value::Null),
    ]
}

/// All rights, so that one more is a decision.
fn rights() -> Vec<Fact> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let nvidia = "resource.nvidia.com";
    let mut groups = rule("octavo.dev", "podgroups", &["list", "watch"]);
    groups["apiGroups"] = json!(["octavo.dev", "scheduling.k8s.io"]);
    let cluster = json!([
        rule(nvidia, "computedomains", &["list", "watch", "patch"]),
        rule(nvidia, "computedomains/status", &["patch"]),
        rule(
            "resource.k8s.io",
            "resourceclaimtemplates",
            &["list", "watch", "create", "patch", "delete"]
        ),
        rule("resource.k8s.io", "resourceclaims", &["list", "watch", "patch"]),
        rule("", "nodes", &["list", "watch", "patch"]),
        rule("", "pods", &["get"]),
        groups,
        rule("batch", "jobs", &["list", "watch"]),
        rule("events.k8s.io", "events", &["create", "patch"]),
        rule("octavo.dev", "healthpolicies", &["list", "watch"]),
        rule("octavo.dev", "healthpolicies/status", &["patch"]),
        rule("octavo.dev", "nodehealths", &["get", "list", "watch", "patch"]),
        rule("octavo.dev", "maintenances", &["get", "list", "watch"]),
        rule("octavo.dev", "maintenances/status", &["patch"]),
        rule("", "nodes", &["get", "list", "watch", "patch"]),
        rule("", "pods", &["list", "delete"]),
        rule("", "pods/eviction", &["create"]),
        rule("", "pods/status", &["patch"]),
        rule("resource.k8s.io", "resourceclaims", &["get"]),
        rule("events.k8s.io", "events", &["create", "patch"]),
    ]);
    let mut lease = rule("coordination.k8s.io", "leases", &["get", "update"]);
    lease["resourceNames"] = json!(["octavo-controller"]);
    let namespace = json!([
        rule("apps", "daemonsets", &["list", "watch", "create", "update", "patch", "delete"]),
        rule(nvidia, "computedomaincliques", &["list", "watch", "create", "patch", "delete"]),
        rule("", "pods", &["list", "watch"]),
        rule("coordination.k8s.io", "leases", &["create"]),
        lease,
    ]);
    let daemon = json!([rule(nvidia, "computedomaincliques", &["list", "watch", "patch"])]);
    let agent = rule(nvidia, "computedomains", &["get", "watch"]);
    vec![
        fact("ClusterRole/octavo-controller", "/rules", cluster),
        fact("Role/octavo-controller", "/rules", namespace),
        fact("Role/octavo-imex-daemon", "/rules", daemon),
        fact("ClusterRole/octavo-imex-daemon", "", Value::Null),
        fact("ClusterRole/octavo-agent", "/rules/6", agent),
        fact(
            "ClusterRole/octavo-agent",
            "/rules/8",
            rule("octavo.dev", "nodehealths", &["get", "list", "watch", "create"]),
        ),
        fact(
            "ClusterRole/octavo-agent",
            "/rules/9",
            rule("octavo.dev", "nodehealths/status", &["get", "patch"]),
        ),
        fact(
            "ClusterRole/octavo-agent",
            "/rules/10",
            rule("octavo.dev", "healthpolicies", &["get", "list", "watch"]),
        ),
        fact("ClusterRole/octavo-agent", "/rules/11", Value::Null),
        fact(
            "ValidatingAdmissionPolicy/octavo-nodehealth",
            "/spec/matchConstraints/resourceRules/0/resources",
            json!(["nodehealths", "nodehealths/status"]),
        ),
        fact("ClusterRoleBinding/octavo-controller", SUBJECT, json!("octavo-controller")),
        fact("RoleBinding/octavo-controller", SUBJECT, json!("octavo-controller")),
        fact("RoleBinding/octavo-imex-daemon", SUBJECT, json!("octavo-imex-daemon")),
    ]
}

pub(super) fn every_value_facts() -> Vec<Fact> {
    let digest = "0123456789abcdef".repeat(4);
    let config = EVERY_CONFIG.replace("DIGEST", &digest);
    let daemons = json!({"matchExpressions": [
        {"key": "resource.nvidia.com/computeDomain", "operator": "Exists"},
    ]});
    let ports = json!([{"port": 50000, "protocol": "TCP"}, {"port": 50005, "protocol": "TCP"}]);
    vec![
        fact(DOMAINS, KEPT, Value::Null),
        fact(CLIQUES, KEPT, Value::Null),
        fact("ConfigMap/octavo-gpus-controller", "/data/controller.yaml", json!(config)),
        fact("Deployment/octavo-gpus-controller", "/spec/replicas", json!(3)),
        fact(
            "Deployment/octavo-gpus-controller",
            "/spec/template/spec/affinity",
            json!({"nodeAffinity": {}}),
        ),
        fact(
            "Deployment/octavo-gpus-controller",
            "/spec/template/spec/containers/0/command/3",
            json!("--metrics-listen=:9997"),
        ),
        // Prometheus reads the metrics.
        fact(
            "Deployment/octavo-gpus-controller",
            "/spec/template/spec/containers/0/command/4",
            json!("--metrics-access=everyone"),
        ),
        fact(
            "PodMonitor/octavo-gpus-controller",
            "/spec/podMetricsEndpoints/0/port",
            json!("metrics"),
        ),
        fact(
            "DaemonSet",
            "/spec/template/spec/volumes/14/hostPath/path",
            json!("/var/lib/k0s/kubelet/plugins/compute-domain.nvidia.com"),
        ),
        // Certificates of the daemons.
        fact(
            "Role/octavo-gpus-controller",
            "/rules/3",
            json!({
                "apiGroups": [""], "resources": ["secrets"],
                "verbs": ["list", "watch", "create", "delete"],
            }),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-controller-secrets",
            CONDITION,
            json!(requester("gpu-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicyBinding/octavo-gpus-controller-secrets",
            "/spec/validationActions/0",
            json!("Deny"),
        ),
        fact("SecurityContextConstraints", "/volumes/2", json!("secret")),
        fact("ClusterRoleBinding/octavo-gpus-controller", SUBJECT, json!("gpu-controller")),
        fact("RoleBinding/octavo-gpus-imex-daemon", SUBJECT, json!("gpu-imex-daemon")),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-controller-nodelabel",
            CONDITION,
            json!(requester("gpu-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-controller-daemonsets",
            IMAGE,
            json!(image(&format!("registry.example.com:5000/mirror/octavo@sha256:{digest}"))),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-controller-claims",
            CONDITION,
            json!(requester("gpu-controller")),
        ),
        fact(
            "ValidatingAdmissionPolicy/octavo-gpus-cliqueentry",
            CONDITION,
            json!(requester("gpu-imex-daemon")),
        ),
        fact("NetworkPolicy/octavo-gpus-controller", "/spec/ingress/0/ports/0/port", json!(9997)),
        // Only daemons reach daemons.
        fact("NetworkPolicy/octavo-gpus-imex-daemon", "/spec/podSelector", daemons.clone()),
        fact(
            "NetworkPolicy/octavo-gpus-imex-daemon",
            "/spec/ingress",
            json!([{"from": [{"podSelector": daemons}], "ports": ports}]),
        ),
        fact("SecurityContextConstraints", "/metadata/name", json!("octavo-gpus-imex-daemon")),
        fact("SecurityContextConstraints", "/allowHostDirVolumePlugin", json!(false)),
        fact("SecurityContextConstraints", "/allowPrivilegedContainer", json!(false)),
        fact("SecurityContextConstraints", "/runAsUser/type", json!("RunAsAny")),
        fact(
            "Role/octavo-gpus-imex-daemon-scc",
            "/rules/0/resourceNames",
            json!(["octavo-gpus-imex-daemon"]),
        ),
        fact("RoleBinding/octavo-gpus-imex-daemon-scc", SUBJECT, json!("gpu-imex-daemon")),
    ]
}

/// One replica, and definitions that another installation owns.
pub(super) fn foreign_crds_facts() -> Vec<Fact> {
    vec![
        fact(DOMAINS, "", Value::Null),
        fact(CLIQUES, "", Value::Null),
        fact("CustomResourceDefinition", "/metadata/name", json!("healthpolicies.octavo.dev")),
        fact(CHANNEL_CLASS, "/kind", json!("DeviceClass")),
        fact("Deployment/octavo-controller", "/spec/replicas", json!(1)),
        fact("PodDisruptionBudget/octavo-controller", "", Value::Null),
        fact("PodDisruptionBudget/octavo-scheduler", "/spec/maxUnavailable", json!(1)),
    ]
}

/// The hosts run `nvidia-imex`: there are no daemons, and so no class for their claims.
pub(super) fn host_imex_facts() -> Vec<Fact> {
    let config = CONFIG.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let config = config.replace("driverManaged", "hostManaged");
    vec![
        fact(DAEMON_CLASS, "", Value::Null),
        fact(CHANNEL_CLASS, "/kind", json!("DeviceClass")),
        fact("ConfigMap/octavo-controller", "/data/controller.yaml", json!(config)),
        fact("ConfigMap/octavo-agent", "/data/agent.yaml", json!(HOST_AGENT_CONFIG)),
    ]
}

/// Nothing is left, and the agent is no driver of `ComputeDomains`.
pub(super) fn disabled_facts() -> Vec<Fact> {
    let drivers = "variables.spec.driver in ['gpu.nvidia.com']";
    let absent = [
        DOMAINS,
        CLIQUES,
        CHANNEL_CLASS,
        DAEMON_CLASS,
        "ConfigMap/octavo-controller",
        "Deployment/octavo-controller",
        "PodDisruptionBudget/octavo-controller",
        "ServiceAccount/octavo-controller",
        "ServiceAccount/octavo-imex-daemon",
        "ClusterRole/octavo-controller",
        "ClusterRoleBinding/octavo-controller",
        "Role/octavo-controller",
        "Role/octavo-imex-daemon",
        "RoleBinding/octavo-controller",
        "RoleBinding/octavo-imex-daemon",
        "ValidatingAdmissionPolicy/octavo-controller-nodelabel",
        "ValidatingAdmissionPolicy/octavo-controller-daemonsets",
        "ValidatingAdmissionPolicy/octavo-controller-templates",
        "ValidatingAdmissionPolicy/octavo-controller-claims",
        "ValidatingAdmissionPolicy/octavo-cliqueentry",
        DAEMON_CLAIMS,
        "NetworkPolicy/octavo-controller",
        "NetworkPolicy/octavo-imex-daemon",
        "PodMonitor/octavo-controller",
        "SecurityContextConstraints",
    ];
    let mut facts: Vec<Fact> = absent.map(|object| fact(object, "", Value::Null)).into();
    facts.extend([
        fact("ClusterRole/octavo-agent", "/rules/6/resources", json!(["events"])),
        fact("DaemonSet", "/spec/template/spec/containers/0/volumeMounts/11", Value::Null),
        fact("DaemonSet", "/spec/template/spec/volumes/11", Value::Null),
        fact("ValidatingAdmissionPolicy/octavo-resourceslices", DRIVERS, json!(drivers)),
    ]);
    facts
}

/// `ComputeDomains` need the clique's label of nodes, which agents write.
pub(super) fn without_policies_facts() -> Vec<Fact> {
    let patch = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]});
    vec![
        fact("ValidatingAdmissionPolicy", "", Value::Null),
        fact("ValidatingAdmissionPolicyBinding", "", Value::Null),
        fact("ClusterRole/octavo-agent", "/rules/5", patch),
        fact("Deployment/octavo-controller", "/spec/replicas", json!(2)),
    ]
}

/// The lab runs the programs as processes, with the tokens of these accounts.
pub(super) fn lab_facts() -> Vec<Fact> {
    vec![
        fact("ServiceAccount/octavo-controller", "/metadata/namespace", json!("octavo-system")),
        fact("ServiceAccount/octavo-imex-daemon", "/metadata/namespace", json!("octavo-system")),
        fact(DOMAINS, "/spec/group", json!("resource.nvidia.com")),
        fact(CHANNEL_CLASS, "/kind", json!("DeviceClass")),
    ]
}

fn requester(account: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:octavo-system:{account}'")
}

fn image(name: &str) -> String {
    format!("variables.isSameSpec || variables.containers.all(c, c.image == '{name}')")
}
