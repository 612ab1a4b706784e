//! Octavo's own objects in the lab: those of the rendered Helm chart.

use anyhow::Context as _;
use kube::api::DynamicObject;

use crate::apply;

/// Namespace of Octavo's own objects.
pub(crate) const NAMESPACE: &str = "octavo-system";

/// Service account of the agents.
pub(crate) const AGENT: &str = "octavo-agent";

/// The chart, rendered for the lab.
const CHART: &str = include_str!("../manifests/octavo.yaml");

/// Applies the chart's objects.
pub(crate) async fn apply(client: &kube::Client) -> anyhow::Result<()> {
    apply::apply(client, &objects()?).await.context("apply the rendered chart")
}

/// The chart's objects without its workloads: in the lab the agents are processes, not pods.
fn objects() -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = apply::parse(CHART).context("read the rendered chart")?;
    objects.retain(|object| {
        !object.types.as_ref().is_some_and(|types| types.api_version.starts_with("apps/"))
    });
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rendered_chart_has_what_the_agents_need_and_no_workloads() {
        let objects = objects().unwrap();
        let has = |kind: &str, name: &str| {
            objects.iter().any(|object| {
                apply::kind(object) == kind && object.metadata.name.as_deref() == Some(name)
            })
        };
        assert!(has("Namespace", NAMESPACE));
        assert!(has("ServiceAccount", AGENT));
        assert!(has("DeviceClass", "gpu.nvidia.com"));
        assert!(objects.iter().any(|object| apply::kind(object) == "ClusterRoleBinding"));
        assert!(!objects.iter().any(|object| apply::kind(object) == "DaemonSet"));
    }
}
