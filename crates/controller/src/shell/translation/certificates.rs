//! Keeps the webhook's certificates, and shows the current one.
//!
//! All replicas read the Secret. The leader makes and renews what is in it, and tells the API server which authorities to trust. An
//! authority is trusted before a replica serves under it, and after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use octavo_api::names::CONTROLLER;
use octavo_kube_io::admin::Check;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::identity::{Identity, certified};
use crate::config::Config;
use crate::shell::leader::Leader;
use crate::shell::requests;
use crate::translation::authority::{Certificates, OVERLAP, Step, step};

/// Time between two reads of the Secret.
const REFRESH: Duration = Duration::from_secs(10);
/// The same, until there is a certificate.
const FIRST_REFRESH: Duration = Duration::from_millis(500);
/// Time for API servers to see a changed `caBundle`.
const SETTLE: Duration = Duration::from_secs(10);

/// Keeps the certificates.
pub(super) struct Keeper {
    client: Client,
    secrets: Api<Secret>,
    webhooks: Api<MutatingWebhookConfiguration>,
    secret_name: String,
    webhook_name: String,
    hosts: Vec<String>,
    leader: Leader,
    identity: Arc<Identity>,
    check: Check,
    /// The certificate that is shown.
    shown: Option<Certificates>,
    last_read: Instant,
    problem: String,
}

impl Keeper {
    pub(super) fn new(
        client: &Client,
        config: &Config,
        leader: Leader,
        identity: Arc<Identity>,
        check: Check,
    ) -> Self {
        let settings = &config.translation;
        Self {
            client: client.clone(),
            secrets: Api::namespaced(client.clone(), &config.namespace),
            webhooks: Api::all(client.clone()),
            secret_name: settings.secret_name.clone(),
            webhook_name: settings.webhook_name.clone(),
            hosts: settings.hosts.clone(),
            leader,
            identity,
            check,
            shown: None,
            last_read: Instant::now(),
            problem: String::new(),
        }
    }

    /// Keeps them without end.
    pub(super) async fn run(mut self) {
        loop {
            match self.refresh().await {
                Ok(()) => self.problem.clear(),
                Err(error) => self.report(&format!("{error:#}")),
            }
            let wait = if self.identity.is_set() { REFRESH } else { FIRST_REFRESH };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the Secret, shows its certificate and, as the leader, keeps both.
    pub(super) async fn refresh(&mut self) -> anyhow::Result<()> {
        let secret =
            self.secrets.get_opt(&self.secret_name).await.context("cannot read the Secret")?;
        self.last_read = Instant::now();
        let secret = secret.with_context(|| {
            format!(
                "there is no Secret {}, which the chart makes: upgrade the release",
                self.secret_name
            )
        })?;
        let read = Certificates::read(&texts(&secret));
        let unusable = read.as_ref().and_then(|read| check_pairs(read).err());
        let mut found = read.filter(|_| unusable.is_none());
        let kept =
            if self.leader.is_leading() { self.keep(secret, &mut found).await } else { Ok(()) };
        // What is there is shown, whatever the leader could not write.
        if let Some(found) = found {
            if self.shown.as_ref() != Some(&found) {
                self.identity
                    .set(&found.certificate, &found.key)
                    .context("the certificate of the Secret cannot be used")?;
                tracing::info!("the webhook shows a new certificate");
                self.shown = Some(found);
            }
            self.check.pass();
        } else if let Some(error) = unusable {
            kept?;
            return Err(error);
        }
        kept
    }

    /// What the leader does. `found` becomes what it has made.
    async fn keep(&self, secret: Secret, found: &mut Option<Certificates>) -> anyhow::Result<()> {
        let now = Timestamp::now();
        // An emptied Secret, or one that cannot be used, gets back what replicas serve under.
        if found.is_none()
            && let Some(shown) = self.shown.clone()
        {
            return self.store(secret, shown, found).await;
        }
        match step(found.as_ref(), &self.hosts, now).context("cannot make a certificate")? {
            Step::Nothing => {}
            Step::Renew(made) => self.store(secret, made, found).await?,
            Step::Replace(made) => {
                self.trust(&made.bundle(now)).await?;
                if found.is_some() {
                    tokio::time::sleep(SETTLE).await;
                }
                self.store(secret, made, found).await?;
            }
        }
        match found {
            Some(found) => self.trust(&found.bundle(now)).await,
            None => Ok(()),
        }
    }

    /// Writes the Secret, unless it has changed since it was read.
    async fn store(
        &self,
        mut secret: Secret,
        made: Certificates,
        found: &mut Option<Certificates>,
    ) -> anyhow::Result<()> {
        let bytes = |(key, text): (String, String)| (key, ByteString(text.into_bytes()));
        secret.data = Some(made.data().into_iter().map(bytes).collect());
        let post =
            PostParams { field_manager: Some(CONTROLLER.to_owned()), ..PostParams::default() };
        let write = self.secrets.replace(&self.secret_name, &post, &secret);
        let written = self.leader.write("webhook-certificate", write).await;
        if written.context("cannot write the Secret")?.is_some() {
            tracing::info!(secret = %self.secret_name, "a certificate is issued");
            *found = Some(made);
        }
        Ok(())
    }

    /// Makes the API server trust these authorities, and no others.
    async fn trust(&self, bundle: &str) -> anyhow::Result<()> {
        let name = &self.webhook_name;
        let found = self.webhooks.get(name).await;
        let found = found
            .with_context(|| format!("cannot read the MutatingWebhookConfiguration {name}"))?;
        let bundle = ByteString(bundle.as_bytes().to_vec());
        let mut patch: Vec<Value> = Vec::new();
        for (index, webhook) in found.webhooks.iter().flatten().enumerate() {
            if webhook.client_config.ca_bundle.as_ref() != Some(&bundle) {
                let path = format!("/webhooks/{index}");
                patch.push(
                    json!({"op": "test", "path": format!("{path}/name"), "value": webhook.name}),
                );
                let path = format!("{path}/clientConfig/caBundle");
                patch.push(json!({"op": "add", "path": path, "value": bundle}));
            }
        }
        if patch.is_empty() {
            return Ok(());
        }
        let path = format!("{}/{name}", MutatingWebhookConfiguration::url_path(&(), None));
        let request = requests::json_patch(&path, &patch.into())?;
        let write = self.client.request::<Value>(request);
        let written = self.leader.write("webhook-ca-bundle", write).await;
        written.with_context(|| format!("cannot write the MutatingWebhookConfiguration {name}"))?;
        tracing::info!(webhook = %name, "the API server trusts the webhook's authority");
        Ok(())
    }

    /// Logs a problem once. A replica that has not read the Secret for long may serve under an authority that is trusted no more.
    fn report(&mut self, problem: &str) {
        if self.problem != problem {
            tracing::warn!(%problem, "the webhook's certificate cannot be kept; it is tried again");
            problem.clone_into(&mut self.problem);
        }
        if !self.identity.is_set() || self.last_read.elapsed() > OVERLAP / 2 {
            self.check.fail(problem);
        }
    }
}

/// Fails if a certificate or a key of the Secret cannot be read, or if the two do not belong together.
fn check_pairs(certificates: &Certificates) -> anyhow::Result<()> {
    for (name, (certificate, key)) in
        [("ca", certificates.authority()), ("tls", certificates.serving())]
    {
        certified(certificate, key).with_context(|| {
            format!("{name}.crt and {name}.key of the Secret cannot be used, and the leader makes others")
        })?;
    }
    Ok(())
}

/// The Secret's data as texts.
fn texts(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), String::from_utf8(value.0.clone()).ok()?)))
        .collect()
}
