//! Many domains at once, and one domain on many nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use kube::Client;
use octavo_api::ComputeDomain;
use octavo_api::imex::{ImexIsolation, ImexSettings};
use octavo_figure::{Figure, Goal};
use octavo_lab::{Lab, Owner};

use super::rack::{Rack, TRAYS};
use crate::api_server;
use crate::lab_dir::LabDir;

/// Domains at once.
const DOMAINS: usize = 10;
/// Turns with many domains.
const TURNS: usize = 5;
/// Nodes of a large domain: 14 racks and a part of one.
const NODES: usize = 256;
/// Their cliques.
const CLIQUES: usize = 15;
/// Turns with many nodes, each of which takes a minute or so.
const LARGE_TURNS: usize = 3;

/// Measures both.
pub(super) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Box::pin(many_domains(octavo)).await?;
    figures.extend(Box::pin(many_nodes(octavo)).await?);
    Ok(figures)
}

/// Ten domains that share a clique, with a pod of each on each tray.
async fn many_domains(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(format!("gb200-tray={TRAYS}").parse()?);
    options.controller = Some(true);
    options.imex =
        Some(ImexSettings { isolation: ImexIsolation::Channel, ..ImexSettings::default() });
    let lab = Box::pin(Lab::up(options)).await?;
    let client = lab.client().await?;
    let measured = async {
        let rack = Rack::new(&client, Owner::Kube, TRAYS).pinned();
        let mut times = Vec::new();
        for turn in 0..TURNS {
            let names: Vec<String> =
                (0..DOMAINS).map(|domain| format!("turn-{turn}-{domain}")).collect();
            let began = Instant::now();
            try_join_all(names.iter().map(|name| rack.start(name))).await?;
            times.push(began.elapsed().as_secs_f64());
            check_channels(&rack.all().await?)?;
            rack.delete_all().await?;
        }
        anyhow::Ok(times)
    };
    let times = Box::pin(measured).await;
    lab.down().await?;
    Ok(vec![Figure::new(
        "10 domains at once on 18 trays (isolation channel), 180 pods from create to running",
        "s",
        &times?,
        Goal::None,
    )?])
}

/// Checks that no two domains have one channel.
fn check_channels(domains: &[ComputeDomain]) -> anyhow::Result<()> {
    let mut channels = BTreeSet::new();
    for domain in domains {
        let status = domain.status.as_ref().context("a domain has no status")?;
        ensure!(!status.channels.is_empty(), "a domain has no channel");
        for channel in &status.channels {
            let is_new = channels.insert((channel.clique_id.clone(), channel.channel));
            ensure!(is_new, "two domains have channel {}", channel.channel);
        }
    }
    ensure!(domains.len() == DOMAINS, "{} domains", domains.len());
    Ok(())
}

/// One domain with a pod on each of 256 nodes.
async fn many_nodes(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(format!("gb200-tray={NODES}").parse()?);
    options.controller = Some(true);
    let lab = Box::pin(Lab::up(options)).await?;
    let client = lab.client().await?;
    let measured = async {
        let rack = Rack::new(&client, Owner::Kube, NODES);
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        let before = conflicts(&client).await?;
        for turn in 0..LARGE_TURNS {
            let name = format!("turn-{turn}");
            starts.push(rack.start(&name).await?.0.as_secs_f64());
            rack.wait_until_ready(&name).await?;
            check_indices(&rack.all().await?)?;
            ends.push(rack.stop(&name).await?.as_secs_f64());
        }
        anyhow::Ok((starts, ends, conflicts(&client).await? - before))
    };
    let measured = Box::pin(measured).await;
    lab.down().await?;
    let (starts, ends, conflicts) = measured?;
    let name = "256 pods on 256 nodes in 15 cliques from create to running";
    Ok(vec![
        Figure::new(name, "s", &starts, Goal::Below(60.0))?,
        Figure::new("the same, delete until nothing is left", "s", &ends, Goal::None)?,
        Figure::new(
            "write conflicts of nodes, domains and cliques, of all clients",
            "",
            &[conflicts],
            Goal::Exactly(0.0),
        )?,
    ])
}

/// Checks that each clique has each index once.
fn check_indices(domains: &[ComputeDomain]) -> anyhow::Result<()> {
    let [domain] = domains else { anyhow::bail!("{} domains", domains.len()) };
    let status = domain.status.as_ref().context("the domain has no status")?;
    let mut indices: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for node in &status.nodes {
        let index = node.index.with_context(|| format!("{} has no index", node.name))?;
        let is_new = indices.entry(&node.clique_id).or_default().insert(index);
        ensure!(is_new, "two nodes of {} have the index {index}", node.clique_id);
    }
    ensure!(status.nodes.len() == NODES, "the status has {} nodes", status.nodes.len());
    ensure!(indices.len() == CLIQUES, "the nodes are in {} cliques", indices.len());
    Ok(())
}

/// Writes of these kinds that met a newer version.
async fn conflicts(client: &Client) -> anyhow::Result<f64> {
    let conflicts = api_server::conflicts(client).await?;
    let of = ["nodes", "computedomains", "computedomaincliques"];
    Ok(of.iter().filter_map(|resource| conflicts.get(*resource)).sum())
}
