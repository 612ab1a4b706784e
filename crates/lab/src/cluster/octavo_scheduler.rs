//! Octavo's scheduler in a lab: availability, token and config file.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::cluster::kubeconfig::{self, Credential};
use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::pki;
use crate::cluster::settings::Settings;

/// Lifetime of its token in seconds: 30 days. The lab does not renew it.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// Whether this `octavo` binary has a scheduler.
pub fn has_scheduler(octavo: &Path) -> bool {
    let status = Command::new(octavo)
        .args(["scheduler", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
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

/// Writes the scheduler's files: a kubeconfig with a token of the chart's service account, which
/// has exactly the chart's rights, and the config file.
pub(crate) async fn write_files(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
    more: Option<&Value>,
) -> anyhow::Result<()> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), manifests::NAMESPACE);
    let token = accounts
        .create_token_request(manifests::SCHEDULER, &PostParams::default(), &request)
        .await
        .context("ask for the token of Octavo's scheduler")?
        .status
        .and_then(|status| status.token)
        .context("the API server answered without a token")?;
    let token_file = layout.octavo_scheduler_token();
    pki::write_secret(&token_file, &token)?;
    let kubeconfig = layout.client_kubeconfig("octavo-scheduler");
    let credential = Credential::TokenFile(&token_file);
    kubeconfig::write(&kubeconfig, layout, settings.apiserver(), &credential)?;
    let text = serde_saphyr::to_string(&config(more)).context("write a config file as YAML")?;
    let path = layout.octavo_scheduler_config();
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The config file: the chart's, without settings that only a cluster has.
fn config(more: Option<&Value>) -> Value {
    let mut config = json!({
        "schedulerName": "octavo",
        // It is the only scheduler, and the lease of a killed one would delay its successor.
        "leaderElection": { "enabled": false },
    });
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
        let config = config(Some(&json!({"schedulerName": "other", "a": 1})));
        assert_eq!(config["schedulerName"], "other");
        assert_eq!(config["a"], 1);
        assert_eq!(config["leaderElection"]["enabled"], false);
    }
}
