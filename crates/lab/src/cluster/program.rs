//! What Octavo's programs need that a cluster runs as pods and a lab as processes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};

use crate::cluster::kubeconfig::{self, Credential};
use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::pki;
use crate::cluster::settings::Settings;

/// Lifetime of a token in seconds: 30 days. The lab does not renew it.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// Whether an `octavo` binary has a subcommand.
pub(crate) fn has_program(octavo: &Path, command: &str) -> bool {
    let status = Command::new(octavo)
        .args([command, "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Writes a kubeconfig with a token of a service account of the chart, which has exactly the chart's rights. Account and
/// kubeconfig have one name.
pub(crate) async fn write_kubeconfig(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
    account: &str,
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
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("ask for a token of {account}"))?
        .status
        .and_then(|status| status.token)
        .context("the API server answered without a token")?;
    let token_file = layout.pki_file(&format!("{account}.token"));
    pki::write_secret(&token_file, &token)?;
    let kubeconfig = layout.client_kubeconfig(account);
    let credential = Credential::TokenFile(&token_file);
    kubeconfig::write(&kubeconfig, layout, settings.apiserver(), &credential)
}
