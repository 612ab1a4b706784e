//! Octavo's scheduler in a lab: availability and config file.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::program::{has_program, write_kubeconfig};
use crate::cluster::repair::ControllerRepair;
use crate::cluster::settings::Settings;

/// Whether this `octavo` binary has a scheduler.
pub fn has_scheduler(octavo: &Path) -> bool {
    has_program(octavo, "scheduler")
}

/// Whether to run the scheduler, from the request and the binary's abilities.
pub(crate) fn should_run(requested: Option<bool>, octavo: &Path) -> anyhow::Result<bool> {
    match requested {
        Some(false) => Ok(false),
        Some(true) if !has_scheduler(octavo) => bail!(
            "{} has no scheduler, and --scheduler asks for one: build it again, or omit the flag",
            octavo.display()
        ),
        Some(true) => Ok(true),
        None => Ok(has_scheduler(octavo)),
    }
}

/// Writes the scheduler's files: its kubeconfig and its config file. `repair` is how the controller
/// deletes members of gangs on lost nodes, if it does.
pub(crate) async fn write_files(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
    more: Option<&Value>,
    repair: Option<&ControllerRepair>,
) -> anyhow::Result<()> {
    write_kubeconfig(client, layout, settings, manifests::SCHEDULER).await?;
    let config = config(more, repair);
    let text = serde_saphyr::to_string(&config).context("write a config file as YAML")?;
    let path = layout.octavo_scheduler_config();
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The config file: the chart's, without settings that only a cluster has.
fn config(more: Option<&Value>, repair: Option<&ControllerRepair>) -> Value {
    let mut config = json!({
        "schedulerName": "octavo",
        // It is the only scheduler, and the lease of a killed one would delay its successor.
        "leaderElection": { "enabled": false },
    });
    if repair.is_some() {
        config["repairBy"] = "Controller".into();
    }
    if let (Some(config), Some(more)) = (config.as_object_mut(), more.and_then(Value::as_object)) {
        config.extend(more.clone());
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_scheduler_has_none_started_unless_it_is_asked_for() {
        let none = Path::new("/bin/false");
        assert!(!should_run(None, none).unwrap());
        assert!(!should_run(Some(false), Path::new("/bin/true")).unwrap());
        assert!(should_run(None, Path::new("/bin/true")).unwrap());
        let error = should_run(Some(true), none).unwrap_err().to_string();
        assert!(error.contains("/bin/false has no scheduler"), "{error}");
    }

    #[test]
    fn given_config_overrides_the_default() {
        let config = config(Some(&json!({"schedulerName": "other", "a": 1})), None);
        assert_eq!(config["schedulerName"], "other");
        assert_eq!(config["a"], 1);
        assert_eq!(config["leaderElection"]["enabled"], false);
        assert_eq!(config["repairBy"], Value::Null);
    }

    #[test]
    fn the_scheduler_leaves_lost_nodes_to_a_controller_that_repairs() {
        let repair = ControllerRepair::of(None);
        assert_eq!(config(None, repair.as_ref())["repairBy"], "Controller");
        let own = json!({"repairBy": "Scheduler"});
        let repair = ControllerRepair::of(Some(&own));
        assert_eq!(config(Some(&own), repair.as_ref())["repairBy"], "Scheduler");
    }
}
