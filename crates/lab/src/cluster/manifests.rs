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

/// Applies the chart's objects.
pub(crate) async fn apply(client: &kube::Client) -> anyhow::Result<()> {
    apply::apply(client, &objects()?).await.context("apply the rendered chart")
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
        ] {
            let name = format!("octavo-{policy}");
            assert!(has("ValidatingAdmissionPolicy", &name), "{name}");
            assert!(has("ValidatingAdmissionPolicyBinding", &name), "{name}");
        }
        assert!(CHART.contains(&format!("c.image == '{OCTAVO_IMAGE}'")), "daemons are refused");
        assert!(objects.iter().any(|object| apply::kind(object) == "ClusterRoleBinding"));
        let kinds: Vec<&str> = objects.iter().map(apply::kind).collect();
        for absent in ["DaemonSet", "Deployment", "ConfigMap", "PodDisruptionBudget"] {
            assert!(!kinds.contains(&absent), "{absent} in {kinds:?}");
        }
    }
}
