//! Settings of the simulated kubelets of a lab.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

/// Settings of the simulated kubelets, from `kubelets.yaml` in the lab's state folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "the field's name says the unit")]
pub(crate) struct Settings {
    /// Seconds between two renewals of a node's Lease.
    pub(crate) lease_seconds: u16,
    /// Seconds between two reports of a node's unchanged status.
    pub(crate) status_seconds: u16,
    /// Seconds between two attempts to open a plugin's health stream.
    pub(crate) health_retry_seconds: u16,
}

impl Default for Settings {
    /// The kubelet's own defaults.
    fn default() -> Self {
        Self { lease_seconds: 10, status_seconds: 300, health_retry_seconds: 5 }
    }
}

impl Settings {
    /// Reads the settings; a missing file gives the defaults.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let settings: Self = serde_saphyr::from_str(&text)
            .with_context(|| format!("{} does not hold kubelet settings", path.display()))?;
        anyhow::ensure!(
            settings.lease_seconds > 0 && settings.health_retry_seconds > 0,
            "{}: leaseSeconds and healthRetrySeconds must be at least 1",
            path.display()
        );
        Ok(settings)
    }
}
