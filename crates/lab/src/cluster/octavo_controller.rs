//! Octavo's controller in a lab: when it runs, and its config file.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::program::{has_program, write_kubeconfig};
use crate::cluster::settings::Settings;
use crate::kubelet::HOST_IMAGE;

/// Whether to run the controller. Unless it is asked for, a lab has one if a node has a fabric of several nodes.
pub(crate) fn should_run(
    requested: Option<bool>,
    has_fabric: bool,
    octavo: &Path,
) -> anyhow::Result<bool> {
    match requested {
        Some(false) => Ok(false),
        Some(true) if !has_program(octavo, "controller") => bail!(
            "{} has no controller, and --controller asks for one: build it again, or omit the flag",
            octavo.display()
        ),
        Some(true) => Ok(true),
        None => Ok(has_fabric && has_program(octavo, "controller")),
    }
}

/// Writes the controller's files: its kubeconfig and its config file.
pub(crate) async fn write_files(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
) -> anyhow::Result<()> {
    write_kubeconfig(client, layout, settings, manifests::CONTROLLER).await?;
    let text = serde_saphyr::to_string(&config()).context("write a config file as YAML")?;
    let path = layout.octavo_controller_config();
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The config file: the chart's, with daemons that simulated kubelets run as processes.
fn config() -> Value {
    json!({
        "namespace": manifests::NAMESPACE,
        // It is the only controller, and the lease of a killed one would delay its successor.
        "leaderElection": { "enabled": false },
        "daemon": { "image": HOST_IMAGE, "imagePullPolicy": "Never" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_with_a_fabric_has_a_controller_unless_it_is_not_wanted() {
        let (without, with) = (Path::new("/bin/false"), Path::new("/bin/true"));
        assert!(!should_run(None, true, without).unwrap());
        assert!(should_run(None, true, with).unwrap());
        assert!(!should_run(None, false, with).unwrap());
        assert!(!should_run(Some(false), true, with).unwrap());
        assert!(should_run(Some(true), false, with).unwrap());
        let error = should_run(Some(true), true, without).unwrap_err().to_string();
        assert!(error.contains("/bin/false has no controller"), "{error}");
    }
}
