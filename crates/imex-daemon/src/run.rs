//! The process: its tasks from the start to a signal.

use std::path::Path;

use anyhow::{Context, bail};
use kube::{Api, Client, ResourceExt as _};
use octavo_api::compute_domain::{ComputeDomainClique, Readiness};
use octavo_kube_io::client::{self, ClientOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::args::{ImexDaemonArgs, ImexDaemonCommand, RunArgs};
use crate::check::check;
use crate::clique;
use crate::ctl::Ctl;
use crate::entry::OwnEntry;
use crate::hosts::HostsFile;
use crate::service_config::ServiceConfig;
use crate::slots::Slots;
use crate::supervisor::Supervisor;

/// Runs a command of `octavo imex-daemon`: `run` until a signal, `check` at once.
///
/// # Errors
///
/// Of `run`: arguments that are missing, or no cluster to speak to. Of `check`: a service that is not ready.
pub async fn run(args: ImexDaemonArgs) -> anyhow::Result<()> {
    match args.command {
        ImexDaemonCommand::Check(args) => check(&args).await,
        ImexDaemonCommand::Run(args) => {
            let mut terminate =
                signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
            let mut interrupt =
                signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
            let signalled = async move {
                tokio::select! {
                    _ = terminate.recv() => tracing::info!("SIGTERM: leaving the domain"),
                    _ = interrupt.recv() => tracing::info!("SIGINT: leaving the domain"),
                }
            };
            let Some(clique_id) = args.check.clique() else {
                tracing::info!(
                    node = %args.node_name,
                    "this node has no NVLink clique: there is nothing to do until the pod ends"
                );
                signalled.await;
                return Ok(());
            };
            let options = ClientOptions {
                kubeconfig: args.kubeconfig.clone(),
                context: None,
                user_agent: format!("octavo-imex-daemon/{}", env!("CARGO_PKG_VERSION")),
            };
            let client = client::connect(&options).await?;
            supervise(client, &args, clique_id, signalled).await
        }
    }
}

/// Runs the service and keeps the entry, until `leave` ends.
async fn supervise(
    client: Client,
    args: &RunArgs,
    clique_id: &str,
    leave: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Some(domain_uid) = args.domain_uid.as_deref().filter(|uid| !uid.is_empty()) else {
        bail!(
            "COMPUTE_DOMAIN_UUID is not set: the CDI spec of the device daemon-0 sets it; see whether the \
             pod has the claim of the ComputeDomain's daemons, and whether the container runtime has CDI"
        );
    };
    let name = ComputeDomainClique::new(domain_uid, clique_id).name_any();
    tracing::info!(
        domain = args.domain_name, namespace = args.domain_namespace, clique = %name,
        node = %args.node_name, address = %args.pod_ip, "supervising nvidia-imex"
    );
    let api: Api<ComputeDomainClique> = Api::namespaced(client, &args.pod_namespace);
    let own = OwnEntry {
        node: args.node_name.clone(),
        address: args.pod_ip,
        clique_id: clique_id.to_owned(),
    };
    let (seen_sender, seen) = watch::channel(None);
    let (readiness_sender, readiness) = watch::channel(Readiness::NotReady);
    let stop = CancellationToken::new();
    let supervisor = supervisor(args, own.clone(), seen.clone(), readiness_sender);

    let follow = tokio::spawn(clique::follow(api.clone(), name, seen_sender));
    let _follow = AbortOnDropHandle::new(follow);
    let publish = tokio::spawn(own.publish(api, seen, readiness));
    let mut publish = AbortOnDropHandle::new(publish);
    let mut supervisor = AbortOnDropHandle::new(tokio::spawn(supervisor.run(stop.clone())));
    tokio::select! {
        () = leave => {}
        ended = &mut supervisor => bail!("the supervision of nvidia-imex has ended: {ended:?}"),
        ended = &mut publish => bail!("the writer of this node's entry has ended: {ended:?}"),
    }
    // The end of the service is that of the pod, which the controller sees.
    drop(publish);
    stop.cancel();
    supervisor.await.context("the supervision of nvidia-imex has ended")
}

fn supervisor(
    args: &RunArgs,
    own: OwnEntry,
    seen: watch::Receiver<clique::Seen>,
    readiness: watch::Sender<Readiness>,
) -> Supervisor {
    Supervisor {
        imex_program: args.imex_program.clone(),
        ctl: Ctl { program: args.check.ctl_program.clone(), config_file: args.check.config_file() },
        config: ServiceConfig {
            address: args.pod_ip,
            server_port: args.server_port,
            command_port: args.command_port,
            nodes_file: args.check.nodes_file(),
            tls_folder: args.check.tls_folder().map(Path::to_owned),
        },
        hosts: HostsFile::new(&args.hosts_file),
        slots: Slots::new(args.max_nodes),
        slot: None,
        own,
        seen,
        readiness,
    }
}

#[cfg(test)]
mod tests;
