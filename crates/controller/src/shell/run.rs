//! The process: client, admin server, lease, watches and the loop.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use octavo_kube_io::admin::{AdminAddress, AdminServer, Readiness};
use octavo_kube_io::client::{self, ClientOptions};
use octavo_kube_io::lease::Elector;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::event_loop::{EventLoop, Inputs};
use super::leader::Leader;
use super::leadership::Leadership;
use super::translation::{self, Parts};
use super::writer::KubeWriter;
use super::{health, pod_reader, watches};
use crate::config::{Config, ControllerArgs};
use crate::metrics::Metrics;

/// Runs the controller until a signal.
pub async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let config = Config::read(args.config.as_deref(), args.namespace.as_deref())?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let identity = args.identity.clone().unwrap_or_else(host_name);
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: None,
        user_agent: format!("octavo-controller/{}", env!("CARGO_PKG_VERSION")),
    };
    let reading = client::connect(&options).await?;
    // Failed writes are planned again; a client that repeats a create could not say whose object it finds.
    let writing = client::connect_without_retries(&options).await?;

    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let stop = CancellationToken::new();
    let readiness = Arc::new(Readiness::default());
    // Kept to the end: a check that is dropped is no part of the report.
    let is_synced = Arc::new(readiness.check("watches", "reading the cluster for the first time"));
    let mut address = None;
    let admin = match args.metrics_listen {
        AdminAddress::None => None,
        AdminAddress::Listen(wanted) => {
            let server = AdminServer::bind(wanted).await?.with_access(args.metrics_access);
            if std::env::var_os("POD_NAME").is_none() {
                address = Some(reachable_address(server.address()));
            }
            tracing::info!(address = %server.address(), "health and metrics");
            let readiness = Arc::clone(&readiness);
            Some(tokio::spawn(server.serve(readiness, Arc::new(registry), stop.clone())))
        }
    };

    // The lease is asked for once the cluster allows the settings, and released last: until then no other controller may write.
    let (synced, is_admitted) = oneshot::channel();
    let leave = CancellationToken::new();
    let (leadership, lease, elector) = if config.leader_election.enabled {
        let (elector, state) = Elector::new(&writing, config.lease(&identity, address))?;
        let leave = leave.clone();
        let elector = tokio::spawn(async move {
            if is_admitted.await.is_ok() {
                elector.run(leave).await;
            }
        });
        (Leadership::of(state.clone()), Some(state), Some(elector))
    } else {
        (Leadership::always(), None, None)
    };
    let translation = if config.translation.enabled {
        let client = writing.clone();
        let (leadership, metrics) = (leadership.clone(), metrics.clone());
        let parts = Parts { client, leadership, metrics, readiness: &readiness, stop: &stop };
        Some(translation::start(&config, parts).await?)
    } else {
        None
    };
    if config.health.enabled {
        let leader = Leader { leadership: leadership.clone(), metrics: metrics.clone() };
        health::start(&reading, &writing, &identity, leader, &config.health, &stop);
    }
    let watches = Arc::clone(&is_synced);
    let synced: Box<dyn FnOnce() + Send> = Box::new(move || {
        watches.pass();
        tracing::info!("the cluster is read");
        // Without leader election nothing waits for it.
        let _ = synced.send(());
    });
    let event_loop = if config.compute_domains {
        let (sender, changes) = watches::watch(&reading, &config, &stop);
        let pods = pod_reader::start(reading, sender, stop.clone());
        let writer = KubeWriter::new(writing, &identity, leadership.clone(), metrics.clone());
        let inputs = Inputs { changes, pods, lease, synced: Some(synced), stop: stop.clone() };
        Some((EventLoop::new(config, writer, leadership, metrics), inputs))
    } else {
        // There is nothing else to read, and no setting that the cluster could refuse.
        synced();
        None
    };
    // However the loop ends, the process ends: without it nothing is planned.
    let (ends, until) = (stop.clone().drop_guard(), stop.clone());
    let event_loop = tokio::spawn(async move {
        let _ends = ends;
        let Some((event_loop, inputs)) = event_loop else {
            until.cancelled().await;
            return Ok(());
        };
        event_loop.run(inputs).await
    });
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: finishing writes in progress"),
        _ = interrupt.recv() => tracing::info!("SIGINT: finishing writes in progress"),
        () = stop.cancelled() => {}
    }
    stop.cancel();
    let domains_end = async {
        let ended = event_loop.await;
        if let Some(elector) = elector {
            leave.cancel();
            let _ = elector.await;
        }
        ended
    };
    let webhook_ends = async {
        if let Some(translation) = translation {
            translation.end().await;
        }
    };
    let (ended, ()) = tokio::join!(domains_end, webhook_ends);
    if let Some(admin) = admin {
        let _ = admin.await;
    }
    Ok(ended.context("the loop of the controller has panicked")??)
}

/// The address at which others reach a server. One that listens on all addresses is reached by the host's name.
fn reachable_address(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("{}:{}", host_name(), address.port());
    }
    address.to_string()
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "octavo-controller".to_owned(), |name| name.trim().to_owned())
}
