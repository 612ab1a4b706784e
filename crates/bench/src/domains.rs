//! `ComputeDomains` on a rack of 18 simulated trays with 72 GPUs: start, end, loss, writes and memory.
//!
//! The API server, the schedulers, the controller, the agents and the daemons are real. `nvidia-imex` is simulated and
//! starts at once, so its own time is not in the figures. Each turn is a domain with a pod on each tray.

mod rack;
mod scale;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::Client;
use octavo_api::compute_domain::Readiness;
use octavo_figure::{Figure, Goal};
use octavo_kubelet_api::dra::v1;
use octavo_lab::{Component, Lab, Owner, Owners};

use crate::kubelet::Kubelet;
use crate::lab_dir::LabDir;
use crate::{api_server, process};
use rack::{Rack, TRAYS};

/// Turns of each kind.
const TURNS: usize = 7;
/// Claims that are prepared one after another.
const PREPARES: usize = 100;
/// Domains that are made and deleted without pods.
const CYCLES: usize = 100;
/// Time without a change.
const IDLE: Duration = Duration::from_secs(20);

/// Measures a rack under each scheduler, then larger clusters.
pub(crate) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (scheduler, owner) in [("kube-scheduler", Owner::Kube), ("Octavo", Owner::Octavo)] {
        let lab_dir = LabDir::new()?;
        let mut options = lab_dir.whole(octavo);
        options.nodes = Some(format!("gb200-tray={TRAYS}").parse()?);
        options.owners = Some(Owners::All(owner));
        options.controller = Some(true);
        let lab = Box::pin(Lab::up(options)).await?;
        let measured = Box::pin(measure(&lab, scheduler, owner)).await;
        lab.down().await?;
        figures.extend(measured?);
    }
    figures.extend(Box::pin(scale::run(octavo)).await?);
    Ok(figures)
}

async fn measure(lab: &Lab, scheduler: &str, owner: Owner) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client().await?;
    let rack = Rack::new(&client, owner, TRAYS);
    // The first domain of a lab fills caches.
    rack.turn("first").await?;
    let before = domain_writes(&client).await?;
    let (mut starts, mut bound, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let times = rack.turn(&format!("turn-{turn}")).await?;
        starts.push(times.start.as_secs_f64());
        bound.push(times.bound_to_running.as_secs_f64());
        ends.push(times.end.as_secs_f64());
    }
    let after = domain_writes(&client).await?;
    let count = f64::from(u32::try_from(TURNS * TRAYS)?);
    let writes = |what: &dyn Fn(&str) -> bool| -> f64 {
        let sum = |all: &BTreeMap<String, f64>| -> f64 {
            all.iter().filter(|(name, _)| what(name)).map(|(_, count)| count).sum()
        };
        (sum(&after) - sum(&before)) / count
    };
    // Kubernetes' own controller counts the pods of a DaemonSet in its status.
    let is_status_of_set = |name: &str| name.ends_with("daemonsets/status");
    let name = |what: &str| format!("{what}, {scheduler}");
    let mut figures = vec![
        Figure::new(name("18 pods from create to running"), "s", &starts, Goal::None)?,
        Figure::new(
            name("last pod bound until all channels are prepared"),
            "s",
            &bound,
            Goal::Below(5.0),
        )?,
        Figure::new(name("delete until nothing is left"), "s", &ends, Goal::Below(5.0))?,
        Figure::new(
            name("API writes for a node, without pods, claims and the status of the DaemonSet"),
            "writes",
            &[writes(&|name| !is_status_of_set(name))],
            Goal::Below(6.01),
        )?,
        Figure::new(
            name("writes of the DaemonSet's status for a node"),
            "writes",
            &[writes(&is_status_of_set)],
            Goal::None,
        )?,
    ];
    for what in after.keys().filter(|name| writes(&|other| other == name.as_str()) >= 0.05) {
        let samples = [writes(&|other| other == what.as_str())];
        figures.push(Figure::new(
            name(&format!("of which {what}")),
            "writes",
            &samples,
            Goal::None,
        )?);
    }
    if owner == Owner::Kube {
        figures.extend(of_one_domain(lab, &client, &rack).await?);
    }
    Ok(figures)
}

/// Figures that do not depend on the scheduler.
async fn of_one_domain(lab: &Lab, client: &Client, rack: &Rack) -> anyhow::Result<Vec<Figure>> {
    rack.start("lasting").await?;
    let controller = lab.process(Component::OctavoController).context("no controller runs")?;
    let controller = u32::try_from(controller.pid)?;
    // The last statuses are written within a second of the last change.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle_from = domain_writes(client).await?;
    tokio::time::sleep(IDLE).await;
    let idle: f64 =
        domain_writes(client).await?.values().sum::<f64>() - idle_from.values().sum::<f64>();
    let prepares = prepares(lab, rack).await?;
    let (mut losses, mut returns) = (Vec::new(), Vec::new());
    for tray in 0..TURNS {
        // The status is written once a second at most; the loss is counted from a quiet state.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let node = rack::tray(tray);
        let began = Instant::now();
        rack.kill_daemon(lab, &node).await?;
        rack.wait_for("lasting", &node, Readiness::NotReady).await?;
        losses.push(began.elapsed().as_secs_f64());
        rack.wait_for("lasting", &node, Readiness::Ready).await?;
        returns.push(began.elapsed().as_secs_f64());
    }
    rack.stop("lasting").await?;
    for cycle in 0..CYCLES {
        rack.create_and_delete(&format!("cycle-{cycle}")).await?;
    }
    rack.wait_until_nothing_is_left().await?;
    for domain in 0..100 {
        rack.create(&format!("kept-{domain}")).await?;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = process::memory(controller)?.resident;
    for domain in 0..100 {
        rack.delete(&format!("kept-{domain}")).await?;
    }
    rack.wait_until_nothing_is_left().await?;
    Ok(vec![
        Figure::new("API writes of a ready domain in 20 s", "writes", &[idle], Goal::Exactly(0.0))?,
        Figure::new("prepare of a channel, the daemon ready", "ms", &prepares, Goal::Below(10.0))?,
        Figure::new("killed daemon until the status shows it", "s", &losses, Goal::Below(1.0))?,
        Figure::new(
            "killed daemon until the node is ready again",
            "s",
            &returns,
            Goal::Below(5.0),
        )?,
        Figure::new("controller with 100 domains, resident", "MiB", &[memory], Goal::Below(40.0))?,
    ])
}

/// Prepares and unprepares the claim of a pod over the agent's socket, as a kubelet that repeats itself.
async fn prepares(lab: &Lab, rack: &Rack) -> anyhow::Result<Vec<f64>> {
    let (node, claim) = rack.claim_of("lasting", 0).await?;
    let folder = lab.layout().node(&node).join("kubelet/plugins/compute-domain.nvidia.com");
    let kubelet = Kubelet::connect(&folder.join("dra.sock")).await?;
    let mut samples = Vec::new();
    for _ in 0..PREPARES {
        kubelet.unprepare(&claim).await?;
        let began = Instant::now();
        let devices: Vec<v1::Device> = kubelet.prepare(&claim).await?;
        samples.push(began.elapsed().as_secs_f64() * 1_000.0);
        ensure!(devices.len() == 1 && !devices[0].cdi_device_ids.is_empty(), "{devices:?}");
    }
    Ok(samples)
}

/// Writes of domains so far: all but those of pods, claims, events, leases and the status of nodes.
async fn domain_writes(client: &Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut writes = api_server::writes(client).await?;
    writes.retain(|what, _| {
        let object = what.split_once(' ').map_or("", |(_, object)| object);
        let others = [
            "pods",
            "resourceclaims",
            "events",
            "nodes/status",
            "serviceaccounts",
            "subjectaccessreviews",
            "tokenreviews",
        ];
        !others.iter().any(|other| object == *other || object.starts_with(&format!("{other}/")))
    });
    Ok(writes)
}
