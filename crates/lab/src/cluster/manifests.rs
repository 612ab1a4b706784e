//! Octavo's own objects in the lab, from the rendered Helm chart.

use anyhow::Context as _;
use kube::api::DynamicObject;

use crate::cluster::apply;

/// Namespace of Octavo's own objects.
pub(crate) const NAMESPACE: &str = "octavo-system";

/// Service account of the agents.
pub(crate) const AGENT: &str = "octavo-agent";

/// Service account of the scheduler.
pub(crate) const SCHEDULER: &str = "octavo-scheduler";

/// Service account of the controller.
pub(crate) const CONTROLLER: &str = "octavo-controller";

/// The chart, rendered for the lab.
const CHART: &str = include_str!("../../manifests/octavo.yaml");

/// Applies the chart's objects. `webhook_port` is that of the controller's webhook on this machine; `None`: there is none.
pub(crate) async fn apply(client: &kube::Client, webhook_port: Option<u16>) -> anyhow::Result<()> {
    let mut objects = objects()?;
    match webhook_port {
        Some(port) => objects.iter_mut().for_each(|object| call_by_address(object, port)),
        None => objects.retain(|object| apply::kind(object) != WEBHOOK),
    }
    apply::apply(client, &objects).await.context("apply the rendered chart")
}

/// Kind of the chart's webhook.
const WEBHOOK: &str = "MutatingWebhookConfiguration";

/// A webhook of the chart is called by its Service, which no pod of a lab serves.
fn call_by_address(object: &mut DynamicObject, port: u16) {
    let webhooks = object.data.get_mut("webhooks").and_then(|it| it.as_array_mut());
    for webhook in webhooks.into_iter().flatten() {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
        let url = format!("https://127.0.0.1:{port}{path}");
        webhook["clientConfig"] = serde_json::json!({ "url": url });
    }
}

/// The chart's objects without workloads and their dependencies. In the lab, agents and scheduler
/// are processes, not pods.
fn objects() -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = apply::parse(CHART).context("read the rendered chart")?;
    let of_workloads = ["DaemonSet", "Deployment", "ConfigMap", "PodDisruptionBudget"];
    objects.retain(|object| !of_workloads.contains(&apply::kind(object)));
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_node::images::OCTAVO_IMAGE;

    #[test]
    fn rendered_chart_has_accounts_and_roles_but_no_workloads() {
        let objects = objects().unwrap();
        let has = |kind: &str, name: &str| {
            objects.iter().any(|object| {
                apply::kind(object) == kind && object.metadata.name.as_deref() == Some(name)
            })
        };
        assert!(has("Namespace", NAMESPACE));
        assert!(has("ServiceAccount", AGENT));
        assert!(has("ServiceAccount", SCHEDULER) && has("ClusterRole", SCHEDULER));
        assert!(has("Role", SCHEDULER) && has("RoleBinding", SCHEDULER));
        assert!(has("DeviceClass", "gpu.nvidia.com"));
        for account in ["octavo-controller", "octavo-imex-daemon"] {
            assert!(has("ServiceAccount", account) && has("Role", account), "{account}");
            assert!(has("RoleBinding", account), "{account}");
        }
        assert!(has("ClusterRole", "octavo-controller"));
        for plural in ["computedomains", "computedomaincliques"] {
            let name = format!("{plural}.resource.nvidia.com");
            assert!(has("CustomResourceDefinition", &name), "{name}");
        }
        for class in ["compute-domain-daemon", "compute-domain-default-channel"] {
            assert!(has("DeviceClass", &format!("{class}.nvidia.com")), "{class}");
        }
        for policy in [
            "controller-nodelabel",
            "controller-daemonsets",
            "controller-templates",
            "controller-claims",
            "cliqueentry",
            "daemonclaims",
            "shareclasses",
        ] {
            let name = format!("octavo-{policy}");
            assert!(has("ValidatingAdmissionPolicy", &name), "{name}");
            assert!(has("ValidatingAdmissionPolicyBinding", &name), "{name}");
        }
        assert!(CHART.contains(&format!("c.image == '{OCTAVO_IMAGE}'")), "daemons are refused");
        assert!(objects.iter().any(|object| apply::kind(object) == "ClusterRoleBinding"));
        let mut webhook = objects.iter().find(|it| apply::kind(it) == WEBHOOK).unwrap().clone();
        call_by_address(&mut webhook, 1234);
        let address = serde_json::json!({"url": "https://127.0.0.1:1234/translate"});
        assert_eq!(webhook.data["webhooks"][0]["clientConfig"], address);
        let kinds: Vec<&str> = objects.iter().map(apply::kind).collect();
        for absent in ["DaemonSet", "Deployment", "ConfigMap", "PodDisruptionBudget"] {
            assert!(!kinds.contains(&absent), "{absent} in {kinds:?}");
        }
    }
}
