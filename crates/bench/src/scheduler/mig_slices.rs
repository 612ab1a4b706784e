//! Slices of a node whose GPUs are all opted in to dynamic MIG, as a real agent publishes them.

use std::path::Path;

use anyhow::{Context, ensure};
use octavo_lab::{DynamicMig, Lab, Owner, Owners};
use serde_json::Value;

use super::api::{Api, Kind};
use super::contender::Contender;
use super::objects::node_name;
use crate::lab_dir::LabDir;

/// The node that an agent runs for.
const NODE: &str = "dgx-h100-0";

/// A published slice, as text with the name of its node.
#[derive(Clone, Debug)]
pub(super) struct MigSlice(String);

/// The slices of one node, from a small lab of its own.
pub(super) async fn of_one_node(
    octavo: &Path,
    contender: Contender,
) -> anyhow::Result<Vec<MigSlice>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some("dgx-h100=1".parse()?);
    options.dynamic_mig = Some(DynamicMig::All);
    options.scheduler = Some(false);
    let owner = if contender.is_octavo() { Owner::Octavo } else { Owner::Kube };
    options.owners = Some(Owners::All(owner));
    let lab = Box::pin(Lab::up(options)).await?;
    let slices = read(&lab).await;
    lab.down().await?;
    slices
}

async fn read(lab: &Lab) -> anyhow::Result<Vec<MigSlice>> {
    let listed = Api::connect(lab).await?.list::<Value>(Kind::Slices).await?;
    let mut slices = Vec::new();
    for mut slice in listed.items {
        let name = slice["metadata"]["name"].take();
        slice["metadata"] = serde_json::json!({"name": name});
        slice["apiVersion"] = "resource.k8s.io/v1".into();
        slice["kind"] = "ResourceSlice".into();
        let text = slice.to_string();
        ensure!(text.contains(NODE), "a slice does not name its node");
        slices.push(MigSlice(text));
    }
    ensure!(slices.len() > 1, "the agent published {} slices", slices.len());
    Ok(slices)
}

impl MigSlice {
    /// The same slice on a node of the benchmark.
    pub(super) fn on_node(&self, number: usize) -> anyhow::Result<Value> {
        let text = self.0.replace(NODE, &node_name(number));
        serde_json::from_str(&text).context("read a slice")
    }
}
