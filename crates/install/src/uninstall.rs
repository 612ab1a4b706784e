//! `octavo uninstall`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use octavo_view::connect::Connection;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::UninstallArgs;
use crate::helm::Helm;
use crate::holders::{self, Holders};
use crate::leftovers;
use crate::modes::{self, FormerModes};
use crate::owner::Release;
use crate::progress::{InstallStatus, few, report};
use crate::rollout;

/// Seconds for helm where the user gives no limit: it needs one.
const NO_LIMIT: Duration = Duration::from_hours(24);

/// Runs `octavo uninstall`.
///
/// # Errors
///
/// Helm or the API server fails, or there is no such release. Nodes that were about to leave stay then.
pub async fn run_uninstall(args: &UninstallArgs) -> anyhow::Result<InstallStatus> {
    let connection = args.release.connect.connect().await?;
    let helm = Helm::find(&args.release).await?;
    let (release, namespace) = (&args.release.release, &args.release.namespace);
    if !helm.has_release().await? {
        bail!("there is no release {release} in namespace {namespace}: `helm list -A` shows all");
    }
    let ours = Release { namespace: namespace.clone(), name: release.clone() };
    let uninstallation = Uninstallation { args, connection: &connection, helm: &helm, ours };
    let nodes =
        connection.within(holders::agent_nodes(&connection.client, &uninstallation.ours)).await?;
    if !uninstallation.is_unused(&nodes).await? {
        return Ok(InstallStatus::Waits);
    }
    let skipped: BTreeSet<String> = args.skip_node.iter().cloned().collect();
    let leaving: BTreeSet<String> = nodes.difference(&skipped).cloned().collect();
    if args.release.dry_run {
        report(&format!("would leave: {} nodes", leaving.len()));
        report(&format!("would be removed: release {release} in namespace {namespace}"));
        return Ok(InstallStatus::Done);
    }
    let mut former = FormerModes::default();
    let outcome = tokio::select! {
        outcome = uninstallation.nodes_leave(&leaving, &mut former) => outcome,
        signalled = interrupted() => signalled.and_then(|()| bail!("interrupted")),
    };
    if !matches!(outcome, Ok(true)) {
        report("the nodes get their former modes back, and the release stays");
        modes::restore(&connection.client, &former).await?;
        return outcome.map(|_| InstallStatus::Waits);
    }
    uninstallation.remove(&nodes).await?;
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
    async fn nodes_leave(
        &self,
        nodes: &BTreeSet<String>,
        former: &mut FormerModes,
    ) -> anyhow::Result<bool> {
        let client = &self.connection.client;
        modes::leave(client, nodes, former).await?;
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

    async fn remove(&self, nodes: &BTreeSet<String>) -> anyhow::Result<()> {
        let (client, ours) = (&self.connection.client, &self.ours);
        let limit = self.args.release.timeout.0.unwrap_or(NO_LIMIT);
        let leases = leftovers::leases(client, ours).await?;
        let again = "the release is partly removed: run `octavo uninstall` again";
        self.helm.uninstall(limit.as_secs().max(1)).await.context(again)?;
        let rest = "helm has removed the release, and something is left";
        let left =
            rollout::wait_gone(client, ours, self.args.release.timeout).await.context(rest)?;
        if !left.is_empty() {
            report(&format!(
                "pods have not ended, so files may be left on their nodes: {}",
                few(left.iter().map(String::as_str))
            ));
        }
        leftovers::remove_slices(client, nodes).await.context(rest)?;
        leftovers::remove_labels(client, nodes).await.context(rest)?;
        leftovers::remove_templates(client).await.context(rest)?;
        leftovers::remove_leases(client, ours, &leases).await.context(rest)?;
        leftovers::remove_definitions(client, ours, self.args.crds).await.context(rest)
    }
}

/// Waits for a signal to end.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
