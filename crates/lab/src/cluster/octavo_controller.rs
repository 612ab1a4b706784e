//! Octavo's controller in a lab: when it runs, and its config file.

use std::path::Path;

use anyhow::{Context as _, bail};
use octavo_api::imex::ImexSettings;
use serde_json::{Value, json};

use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::program::{has_program, write_kubeconfig};
use crate::cluster::repair::ControllerRepair;
use crate::cluster::settings::Settings;
use crate::real_node::images::OCTAVO_IMAGE;

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

/// Refuses settings for IMEX that exclude each other, or that no program of the lab follows.
pub(crate) fn check_imex(
    imex: Option<ImexSettings>,
    has_controller: bool,
    has_real_nodes: bool,
) -> anyhow::Result<()> {
    let Some(imex) = imex else { return Ok(()) };
    imex.services()?;
    if !has_controller {
        bail!(
            "--imex-mode, --imex-isolation and --imex-encryption are for Octavo's controller, which this lab has not: add --controller"
        );
    }
    // Agents know nothing of encryption.
    if has_real_nodes && (ImexSettings { encryption: false, ..imex }) != ImexSettings::default() {
        bail!(
            "--imex-mode and --imex-isolation are for simulated nodes: omit them, or --real-node"
        );
    }
    Ok(())
}

/// Writes the controller's files: its kubeconfig and its config file. `repair` is how it deletes members of gangs on lost nodes, if it
/// does.
pub(crate) async fn write_files(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
    translation: Option<&Value>,
    repair: Option<&ControllerRepair>,
) -> anyhow::Result<()> {
    write_kubeconfig(client, layout, settings, manifests::CONTROLLER).await?;
    let mut config = config(settings.imex);
    if let Some(repair) = repair {
        config["health"]["repair"] = repair.section();
    }
    if let Some(keys) = translation {
        config["translation"] = webhook(settings.ports.octavo_webhook, keys);
    }
    let text = serde_saphyr::to_string(&config).context("write a config file as YAML")?;
    let path = layout.octavo_controller_config();
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The config file: the chart's, with daemons in the lab's image, which simulated kubelets run as processes.
fn config(imex: ImexSettings) -> Value {
    json!({
        "imex": imex,
        "health": { "enabled": true },
        "namespace": manifests::NAMESPACE,
        "daemon": { "image": OCTAVO_IMAGE, "imagePullPolicy": "IfNotPresent" },
    })
}

/// The section `translation`: the controller is a process, which the API server calls by its address. `keys` override it.
fn webhook(port: u16, keys: &Value) -> Value {
    let mut section = json!({
        "enabled": true,
        "listen": format!("127.0.0.1:{port}"),
        "hosts": ["127.0.0.1"],
        // One API server calls it, and another controller that takes over is started by hand.
        "drainSeconds": 0,
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        section[key] = value.clone();
    }
    section
}

#[cfg(test)]
mod tests {
    use octavo_api::imex::{ImexIsolation, ImexMode};

    use super::*;

    #[test]
    fn imex_settings_without_effect_are_refused() {
        let channel = ImexSettings { isolation: ImexIsolation::Channel, ..ImexSettings::default() };
        let host = ImexSettings { mode: ImexMode::HostManaged, ..channel };
        assert!(check_imex(None, false, true).is_ok());
        assert!(check_imex(Some(channel), true, false).is_ok());
        let refused = |imex, has_controller, has_real| {
            check_imex(Some(imex), has_controller, has_real).unwrap_err().to_string()
        };
        assert!(refused(host, true, false).contains("imex.isolation"));
        let encrypted = ImexSettings { encryption: true, ..ImexSettings::default() };
        assert!(check_imex(Some(encrypted), true, true).is_ok());
        assert!(refused(encrypted, false, true).contains("--imex-encryption"));
        assert!(refused(channel, false, false).contains("--controller"));
        assert!(refused(channel, true, true).contains("--real-node"));
    }

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
