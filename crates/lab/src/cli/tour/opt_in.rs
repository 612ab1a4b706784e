//! Opts a node's GPUs in to dynamic MIG during the tour, as an administrator would.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use octavo_api::names::LABEL_DYNAMIC_MIG;

/// Profiles in the tour's manifest.
const PROFILES: [&str; 3] = ["3g.40gb", "2g.20gb", "1g.10gb"];

/// A node whose GPUs the tour has opted in.
pub(super) struct OptIn {
    node: String,
}

impl OptIn {
    /// Opts in the GPUs of a node without other MIG use. Does nothing if the tour's profiles are
    /// already published.
    pub(super) async fn on_any_node(
        client: &Client,
        timeout: Duration,
        say: &mut impl FnMut(&str),
    ) -> anyhow::Result<Option<Self>> {
        if has_profiles(client).await? {
            return Ok(None);
        }
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let slices = slices.list(&ListParams::default()).await.context("list slices")?;
        // Any 80 GB H100 has these profiles and changes its MIG mode without a reset.
        let node = slices.into_iter().find_map(|slice| {
            let devices = slice.spec.devices.unwrap_or_default();
            let is_h100 = devices.iter().flat_map(|device| &device.attributes).any(|attributes| {
                let product = attributes.get("productName");
                let product = product.and_then(|product| product.string.as_deref());
                product == Some("NVIDIA H100 80GB HBM3")
            });
            slice.spec.node_name.filter(|_| is_h100)
        });
        let node =
            node.context("no node of the lab has H100s with 80 GB, which mig.yaml is for")?;
        say(&format!("   kubectl label node {node} {LABEL_DYNAMIC_MIG}=all"));
        let opted_in = Self { node };
        opted_in.label(client, Some("all")).await?;
        let deadline = Instant::now() + timeout;
        while !has_profiles(client).await? {
            if Instant::now() > deadline {
                bail!("{} publishes no MIG placement after {timeout:?}", opted_in.node);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(opted_in))
    }

    /// Removes the label and waits until only whole GPUs are published.
    pub(super) async fn undo(self, client: &Client, timeout: Duration) -> anyhow::Result<()> {
        self.label(client, None).await?;
        let deadline = Instant::now() + timeout;
        while has_profiles(client).await? {
            if Instant::now() > deadline {
                bail!("{} still publishes MIG placements after {timeout:?}", self.node);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn label(&self, client: &Client, value: Option<&str>) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_DYNAMIC_MIG: value}}}));
        let patched = nodes.patch(&self.node, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("label node {}", self.node))?;
        Ok(())
    }
}

/// Whether all profiles of the tour are published.
async fn has_profiles(client: &Client) -> anyhow::Result<bool> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let slices = slices.list(&ListParams::default()).await.context("list slices")?;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let mut missing: Vec<&str> = PROFILES.into();
    for device in devices {
        let attributes = device.attributes.unwrap_or_default();
        let profile = attributes.get("profile").and_then(|profile| profile.string.clone());
        missing.retain(|wanted| Some(*wanted) != profile.as_deref());
    }
    Ok(missing.is_empty())
}
