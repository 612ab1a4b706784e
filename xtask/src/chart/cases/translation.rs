//! What the webhook for pods of HAMi and KAI Scheduler renders to.

use serde_json::{Value, json};

use super::{Fact, fact};

const WEBHOOK: &str = "MutatingWebhookConfiguration/octavo-translation";
const EVERY_WEBHOOK: &str = "MutatingWebhookConfiguration/octavo-gpus-translation";
const NAMES: &str = "Secret/octavo-controller-webhook";
const TEMPLATES: &str = "ValidatingAdmissionPolicy/octavo-controller-templates";

/// The controller's config file without `ComputeDomains`.
const CONFIG: &str = "\
namespace: \"octavo-system\"
computeDomains: false
translation:
  enabled: true
  listen: \":9443\"
  hosts: [\"octavo-controller-webhook.octavo-system.svc\"]
  secretName: \"octavo-controller-webhook\"
  webhookName: \"octavo-translation\"
  schedulerName: \"\"
  models: []
  collectAfterSeconds: 3600
  drainSeconds: 5
leaderElection:
  enabled: true
  namespace: \"octavo-system\"
  name: \"octavo-controller\"
";

/// Nothing of the webhook is there unless it is asked for.
pub(super) fn default_facts() -> Vec<Fact> {
    [WEBHOOK, NAMES, "Service"].map(|object| fact(object, "", Value::Null)).into()
}

/// The webhook alone.
pub(super) fn alone_facts() -> Vec<Fact> {
    let update = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["octavo-controller-webhook"],
        "verbs": ["get", "update"],
    });
    let bundle = json!({
        "apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
        "resourceNames": ["octavo-translation"], "verbs": ["get", "patch"],
    });
    let service = json!({
        "name": "octavo-controller-webhook", "namespace": "octavo-system", "path": "/translate", "port": 443,
    });
    let rules = json!([{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced",
    }]);
    let label = json!({"key": "octavo.dev/translate", "operator": "NotIn", "values": ["false"]});
    let of_hami = json!({"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]});
    let condition =
        json!([{"name": "is-of-hami-or-kai", "expression": octavo_migration::pod_condition()}]);
    vec![
        fact("ConfigMap/octavo-controller", "/data/controller.yaml", json!(CONFIG)),
        fact("Role/octavo-controller", "/rules/0", update),
        fact("ClusterRole/octavo-controller", "/rules/3", bundle),
        fact("ClusterRole/octavo-controller", "/rules/4", Value::Null),
        fact("ServiceAccount/octavo-controller", "/kind", json!("ServiceAccount")),
        fact("PodDisruptionBudget/octavo-controller", "/spec/maxUnavailable", json!(1)),
        fact(
            "Deployment/octavo-controller",
            "/spec/template/spec/containers/0/ports/1/containerPort",
            json!(9443),
        ),
        fact("Service/octavo-controller-webhook", "/spec/ports/0/targetPort", json!("webhook")),
        fact(
            "Service/octavo-controller-webhook",
            "/spec/selector/app.kubernetes.io~1component",
            json!("controller"),
        ),
        // An upgrade must not empty it.
        fact(NAMES, "/data", Value::Null),
        fact(NAMES, "/type", json!("Opaque")),
        fact(WEBHOOK, "/webhooks/0/clientConfig/service", service),
        fact(WEBHOOK, "/webhooks/0/clientConfig/caBundle", Value::Null),
        fact(WEBHOOK, "/webhooks/0/failurePolicy", json!("Fail")),
        fact(WEBHOOK, "/webhooks/0/rules", rules),
        fact(WEBHOOK, "/webhooks/0/matchConditions", condition),
        fact(WEBHOOK, "/webhooks/0/objectSelector/matchExpressions/0", label.clone()),
        fact(WEBHOOK, "/webhooks/0/objectSelector/matchExpressions/1", of_hami),
        fact(WEBHOOK, "/webhooks/0/namespaceSelector/matchExpressions/1", label),
        fact(
            WEBHOOK,
            "/webhooks/0/namespaceSelector/matchExpressions/0/values",
            json!([
                "kube-system",
                "octavo-system",
                "kai-resource-reservation",
                "runai-reservation",
                "kai-scale-adjust",
            ]),
        ),
        fact(
            "NetworkPolicy/octavo-controller",
            "/spec/ingress",
            json!([{"ports": [{"port": 9443, "protocol": "TCP"}]}]),
        ),
        // Templates of ComputeDomains are none of its business then.
        fact(TEMPLATES, "/spec/variables/2/expression", json!("false")),
        fact("ValidatingAdmissionPolicy/octavo-controller-claims", "", Value::Null),
        fact("ValidatingAdmissionPolicy/octavo-controller-nodelabel", "", Value::Null),
    ]
}

/// Every value set, beside `ComputeDomains`.
pub(super) fn every_value_facts() -> Vec<Fact> {
    let move_only = json!({"key": "move", "operator": "Exists"});
    vec![
        fact(
            EVERY_WEBHOOK,
            "/webhooks/0/namespaceSelector/matchLabels",
            json!({"team": "research"}),
        ),
        fact(EVERY_WEBHOOK, "/webhooks/0/namespaceSelector/matchExpressions/2", move_only),
        fact(
            EVERY_WEBHOOK,
            "/webhooks/0/namespaceSelector/matchExpressions/0/values/2",
            json!("kai"),
        ),
        fact(
            "Deployment/octavo-gpus-controller",
            "/spec/template/spec/containers/0/ports/1/containerPort",
            json!(9444),
        ),
        fact("NetworkPolicy/octavo-gpus-controller", "/spec/ingress/1/ports/0/port", json!(9444)),
    ]
}
