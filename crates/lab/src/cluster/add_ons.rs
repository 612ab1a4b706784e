//! Programs that clusters have and Kubernetes itself has not: a name server of pods, and the operator of `MPIJobs`.
//!
//! Clusters run them as pods, a lab as processes with the administrator's rights.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use tokio::time::{Instant, sleep};

use crate::cluster::apply;
use crate::cluster::layout::Layout;
use crate::cluster::settings::{RealNodes, Settings};

/// Longest time from the definition of `MPIJobs` to the first answer about them.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);

/// Domain of the names of Services and pods.
pub(crate) const DOMAIN: &str = "cluster.local";

/// Which of the programs a lab has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddOns {
    /// The name server.
    pub(crate) name_server: bool,
    /// The operator.
    pub(crate) mpi_operator: bool,
}

impl AddOns {
    /// What is asked for. `MPIJobs` on real nodes need names.
    pub(crate) fn requested(
        dns: Option<bool>,
        mpi_operator: Option<bool>,
        has_real_nodes: bool,
    ) -> anyhow::Result<Self> {
        let mpi_operator = mpi_operator == Some(true);
        match dns {
            Some(true) if !has_real_nodes => {
                bail!("--dns is for pods of real nodes: omit it, or add --real-node")
            }
            Some(false) if has_real_nodes && mpi_operator => bail!(
                "--mpi-operator needs the names of pods on real nodes: omit --dns=false, or one of the others"
            ),
            _ => Ok(Self {
                name_server: dns.unwrap_or(mpi_operator && has_real_nodes),
                mpi_operator,
            }),
        }
    }

    /// Whether there is any.
    pub(crate) fn any(self) -> bool {
        self.name_server || self.mpi_operator
    }
}

/// Writes the name server's file.
pub(crate) fn write_name_server(layout: &Layout, real: &RealNodes) -> anyhow::Result<()> {
    let path = layout.name_server_config();
    let text = format!(
        "\
.:53 {{
    bind {}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {}
    }}
}}
",
        real.gateway(),
        layout.kubeconfig().display()
    );
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Applies the definition of `MPIJobs`, which lies beside the operator.
pub(crate) async fn apply_mpi_jobs(
    client: &kube::Client,
    settings: &Settings,
) -> anyhow::Result<()> {
    let operator = settings.control_plane.get("mpi-operator").context("the lab has no operator")?;
    let folder = operator.program.parent().unwrap_or(Path::new("/"));
    let path = folder.join("kubeflow.org_mpijobs.yaml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    apply::apply(client, &apply::parse(&text)?).await.context("apply the definition of MPIJobs")?;
    // The API server answers 404 for a new type until a moment after it has the definition.
    let kind = GroupVersionKind::gvk("kubeflow.org", "v2beta1", "MPIJob");
    let jobs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let deadline = Instant::now() + SERVED_TIMEOUT;
    while let Err(error) = jobs.list(&ListParams::default().limit(1)).await {
        if Instant::now() >= deadline {
            return Err(error).context("list MPIJobs, whose definition was applied");
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_on_real_nodes_brings_names() {
        let of = |dns, operator, has_real| AddOns::requested(dns, operator, has_real);
        assert_eq!(of(None, None, true).unwrap(), AddOns::default());
        assert!(of(None, Some(true), true).unwrap().name_server);
        assert!(!of(None, Some(true), false).unwrap().name_server);
        assert!(of(Some(true), None, true).unwrap().name_server);
        assert!(of(Some(true), None, false).unwrap_err().to_string().contains("--real-node"));
        assert!(of(Some(false), Some(true), true).is_err());
    }

    #[test]
    fn the_name_server_listens_on_the_bridge_and_asks_the_lab_s_api_server() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        let real = RealNodes {
            containerd: "/c".into(),
            network: 7,
            nodes: Vec::new(),
            virtual_machines: None,
        };
        write_name_server(&layout, &real).unwrap();
        let text = std::fs::read_to_string(layout.name_server_config()).unwrap();
        assert!(text.contains("bind 198.18.7.1\n"), "{text}");
        assert!(
            text.contains(&format!("kubeconfig {}\n", layout.kubeconfig().display())),
            "{text}"
        );
    }
}
