//! `octavo uninstall`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use octavo_view::connect::Connection;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::UninstallArgs;
use crate::helm::{Helm, ReleaseState};
use crate::holders::{self, Holders};
use crate::leftovers;
use crate::modes;
use crate::owner::Release;
use crate::progress::{InstallStatus, few, report};
use crate::rollout;

/// Seconds for helm where the user gives no limit: it needs one.
const NO_LIMIT: Duration = Duration::from_hours(24);

/// Runs `octavo uninstall`. One that was interrupted goes on where it was.
///
/// # Errors
///
/// Helm or the API server fails, or there is no such release. Nodes that were about to leave stay then, until helm removes the release.
pub async fn run_uninstall(args: &UninstallArgs) -> anyhow::Result<InstallStatus> {
    let connection = args.release.connect.connect().await?;
    let helm = Helm::find(&args.release).await?;
    let (release, namespace) = (&args.release.release, &args.release.namespace);
    let ours = Release { namespace: namespace.clone(), name: release.clone() };
    let client = &connection.client;
    let begun = connection.within(modes::leaving(client, &ours)).await?;
    let state = helm.state().await?;
    if state == ReleaseState::Absent && begun.is_empty() {
        bail!("there is no release {release} in namespace {namespace}: `helm list -A` shows all");
    }
    let mut nodes = connection.within(holders::agent_nodes(client, &ours)).await?;
    nodes.extend(begun.into_keys());
    let run = Uninstallation { args, connection: &connection, helm: &helm, ours };
    let mut signals = Signals::new()?;
    if state != ReleaseState::Absent {
        if !run.is_unused(&nodes).await? {
            return Ok(InstallStatus::Waits);
        }
        let skipped: BTreeSet<String> = args.skip_node.iter().cloned().collect();
        let leaving: BTreeSet<String> = nodes.difference(&skipped).cloned().collect();
        if args.release.dry_run {
            report(&format!("would leave: {} nodes", leaving.len()));
            report(&format!("would be removed: release {release} in namespace {namespace}"));
            return Ok(InstallStatus::Done);
        }
        let outcome = tokio::select! {
            outcome = run.nodes_leave(&leaving) => outcome,
            () = signals.next() => Err(anyhow!("interrupted")),
        };
        if !matches!(outcome, Ok(true)) {
            report("the nodes get their former modes back, and the release stays");
            modes::restore(client, &run.ours).await?;
            return outcome.map(|_| InstallStatus::Waits);
        }
    } else if args.release.dry_run {
        report(&format!("would be removed: what is left of release {release}"));
        return Ok(InstallStatus::Done);
    }
    let removed = tokio::select! {
        removed = run.remove(&nodes, state) => removed,
        () = signals.next() => Err(anyhow!("interrupted")),
    };
    removed.context("not all is removed: run `octavo uninstall` again, which goes on")?;
    report(&format!("uninstalled: release {release}; the namespace {namespace} stays"));
    Ok(InstallStatus::Done)
}

struct Uninstallation<'a> {
    args: &'a UninstallArgs,
    connection: &'a Connection,
    helm: &'a Helm,
    ours: Release,
}

impl Uninstallation<'_> {
    /// Whether nothing has a GPU of the nodes. What does is printed.
    async fn is_unused(&self, nodes: &BTreeSet<String>) -> anyhow::Result<bool> {
        let found = self.connection.within(holders::read(&self.connection.client, nodes)).await?;
        let Holders { pods, domains, idle_claims } = &found;
        let names = |names: &BTreeSet<String>| few(names.iter().map(String::as_str));
        if !pods.is_empty() {
            report(&format!("in the way: {} pods have GPUs: {}", pods.len(), names(pods)));
            report("  remedy: end them, or move them to nodes of another driver");
        }
        if !domains.is_empty() {
            report(&format!("in the way: {} ComputeDomains: {}", domains.len(), names(domains)));
            report("  remedy: delete them: without the controller their finalizer stays");
        }
        if !idle_claims.is_empty() {
            report(&format!(
                "{} allocated claims without a pod keep devices that will be gone; delete them: {}",
                idle_claims.len(),
                names(idle_claims)
            ));
        }
        Ok(found.is_none())
    }

    /// Asks nodes to leave and waits for them. `false`: something is in the way, which is printed.
    async fn nodes_leave(&self, nodes: &BTreeSet<String>) -> anyhow::Result<bool> {
        let client = &self.connection.client;
        modes::leave(client, nodes, &self.ours).await?;
        let late = modes::wait(client, nodes, self.args.release.timeout).await?;
        for (node, why) in &late {
            report(&format!("in the way: {node}: {why}"));
        }
        if !late.is_empty() {
            report(
                "  remedy: wait longer with --timeout, or leave such a node as it is with --skip-node",
            );
            return Ok(false);
        }
        // A pod may have been placed before its node withdrew its GPUs.
        self.is_unused(nodes).await
    }

    async fn remove(&self, nodes: &BTreeSet<String>, state: ReleaseState) -> anyhow::Result<()> {
        let (client, ours) = (&self.connection.client, &self.ours);
        let limit = self.args.release.timeout.0.unwrap_or(NO_LIMIT);
        let leases = leftovers::leases(client, ours).await?;
        if state != ReleaseState::Absent {
            self.helm.uninstall(limit.as_secs().max(1)).await?;
        }
        let left = rollout::wait_gone(client, ours, self.args.release.timeout).await?;
        if !left.is_empty() {
            report(&format!(
                "pods have not ended, so files may be left on their nodes: {}",
                few(left.iter().map(String::as_str))
            ));
        }
        leftovers::remove_slices(client, nodes).await?;
        leftovers::remove_templates(client).await?;
        leftovers::remove_leases(client, ours, &leases).await?;
        leftovers::remove_definitions(client, ours, self.args.crds).await?;
        // The last step: until then the nodes say that this is not at its end.
        leftovers::remove_labels(client, nodes).await
    }
}

/// Signals to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
