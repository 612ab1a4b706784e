//! The scheduler process: watches, lease, the decision thread, and the writers.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use octavo_kube_io::admin::{AdminAddress, AdminServer, Readiness};
use octavo_kube_io::client::{self, ClientOptions};
use octavo_kube_io::lease::{self, Elector};
use octavo_kube_io::objects::Kind;
use octavo_kube_io::watch::{self, WantedKind, WatchHealth, WatchOptions, Watches};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::bind::{Binder, BinderOptions, Leadership, TermRemaining};
use crate::config::{Config, SchedulerArgs};
use crate::event_loop;
use crate::groups::Groups;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::state::{Scheduler, maintenance_kind, node_health_kind};
use crate::status::{StatusOptions, StatusWriter};

/// How often the age of watches is reported to the metrics.
const WATCH_AGE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the watches wait for the first read of the lease.
const FIRST_LEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the scheduler until a signal.
pub async fn run(args: SchedulerArgs) -> anyhow::Result<()> {
    let config = Config::read(args.config.as_deref())?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let identity = match args.identity.clone() {
        Some(identity) => identity,
        None => host_name(),
    };
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: None,
        user_agent: format!("octavo-scheduler/{}", env!("CARGO_PKG_VERSION")),
    };
    let reading = client::connect(&options).await?;
    // The binder retries writes itself where that is safe, and must see 429 responses.
    let writing = client::connect_without_retries(&options).await?;

    // Names of metrics have the program's prefix already.
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let (questions, asked) = admin::questions();
    let stop = CancellationToken::new();
    let readiness = Arc::new(Readiness::default());
    // Kept to the end: a check that is dropped is no part of the report.
    let is_synced = Arc::new(readiness.check("watches", "reading the cluster for the first time"));
    let watches = Arc::clone(&is_synced);
    let mut address = None;
    let admin = match args.metrics_listen {
        AdminAddress::None => None,
        AdminAddress::Listen(wanted) => {
            let server = AdminServer::bind(wanted).await?.with_access(args.metrics_access);
            if !is_pod(&args, |variable| std::env::var_os(variable)) {
                address = Some(reachable_address(server.address(), &host_name()));
            }
            tracing::info!(address = %server.address(), "health, metrics and explanations");
            let routes = admin::routes(questions);
            let (readiness, registry) = (Arc::clone(&readiness), Arc::new(registry));
            Some(tokio::spawn(server.serve_with(readiness, registry, routes, stop.clone())))
        }
    };

    // The lease is released last: until then no other scheduler may write.
    let leave = CancellationToken::new();
    let (leadership, elector) = if config.leader_election.enabled {
        let (elector, mut lease_state) = Elector::new(&writing, config.lease(&identity, address))?;
        let elector = tokio::spawn(elector.run(leave.clone()));
        // If this process leads at once, it leads since before its first lists and need not relist.
        let _ = timeout(FIRST_LEASE_TIMEOUT, lease_state.changed()).await;
        (leadership(lease_state), Some(elector))
    } else {
        (Leadership::always(), None)
    };
    let (writers, gate) = leadership.gated();
    let Watches { events, health, relist } = watch::watch(&reading, watch_options());
    let watch_ages = tokio::spawn(report_watch_ages(health, metrics.clone(), stop.clone()));

    let options =
        BinderOptions { max_in_flight: config.writes_in_flight, ..BinderOptions::default() };
    let binder =
        Binder::start(writing.clone(), options, writers.clone(), metrics.clone(), stop.clone());
    let status = StatusWriter::start(
        writing,
        StatusOptions::new("octavo.dev/scheduler", &identity)
            .with_scheduled_events(config.scheduled_events),
        writers,
        binder.load.clone(),
        metrics.clone(),
        stop.clone(),
    );
    let scheduler = Scheduler::new(config.core());
    let channels = event_loop::Channels {
        watch_events: events,
        relists: relist,
        op_results: binder.results,
        write_ops: binder.ops,
        reports: status.sender.clone(),
        questions: asked,
        leadership,
        gate,
        metrics,
        synced: Box::new(move || {
            watches.pass();
            tracing::info!("the cluster is read");
        }),
        stop: stop.clone(),
    };
    let decides = spawn_decision_thread(scheduler, channels)?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: finishing writes in progress"),
        _ = interrupt.recv() => tracing::info!("SIGINT: finishing writes in progress"),
    }
    stop.cancel();
    let is_clean = binder.task.await.unwrap_or_default();
    let _ = status.task.await;
    if let Some(elector) = elector {
        if is_clean {
            leave.cancel();
            let _ = elector.await;
        } else {
            // Aborted writes may still be carried out, and the next leader must not decide before
            // that.
            tracing::warn!("some writes have no response: the lease is not released, but expires");
            elector.abort();
        }
    }
    if let Some(admin) = admin {
        let _ = admin.await;
    }
    let _ = watch_ages.await;
    decides.join().map_err(|_| anyhow!("the decision thread has panicked"))
}

/// Decisions have a thread of their own: they may take milliseconds, while writes go on.
fn spawn_decision_thread(
    scheduler: Scheduler,
    channels: event_loop::Channels,
) -> anyhow::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let stop = channels.stop.clone();
    let thread = std::thread::Builder::new().name("decide".to_owned());
    let thread = thread.spawn(move || {
        // However the thread ends, the process ends: without it nothing is decided.
        let _ends = stop.drop_guard();
        runtime.block_on(event_loop::run(scheduler, channels));
    });
    thread.context("cannot start the decision thread")
}

fn watch_options() -> WatchOptions {
    let mut kinds: Vec<WantedKind> = Groups::kinds().iter().map(wanted_kind).collect();
    for Kind { api_version, kind } in [Policies::kind(), node_health_kind(), maintenance_kind()] {
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        kinds.push(WantedKind {
            group: group.to_owned(),
            versions: vec![version.to_owned()],
            kind,
            labels: None,
        });
    }
    WatchOptions { kinds, ..WatchOptions::default() }
}

fn wanted_kind(kind: &crate::groups::WatchedKind) -> WantedKind {
    WantedKind {
        group: kind.api_group.to_owned(),
        versions: kind.versions.iter().map(|version| (*version).to_owned()).collect(),
        kind: kind.kind.to_owned(),
        labels: kind.label.map(str::to_owned),
    }
}

/// The state of the lease, as writers read it.
fn leadership(lease_state: tokio::sync::watch::Receiver<lease::Leadership>) -> Leadership {
    Leadership::new(move || match &*lease_state.borrow() {
        lease::Leadership::Leading(term) => {
            let (now, wall_clock) = (Instant::now(), SystemTime::now());
            if term.until.has_come(now, wall_clock) {
                return None;
            }
            // What begins now must be over when the lease ends.
            let time_left = term.ends.at.saturating_duration_since(now);
            Some(TermRemaining { time_left, since: term.since })
        }
        lease::Leadership::Following { .. } => None,
    })
}

/// Reports the age of each kind's watch to the metrics.
async fn report_watch_ages(health: WatchHealth, metrics: Metrics, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(WATCH_AGE_INTERVAL) => {}
        }
        let now = Instant::now();
        for (kind, health) in health.kinds() {
            if let Some(last_contact) = health.last_contact {
                metrics.watch_age(&kind.kind, now.saturating_duration_since(last_contact));
            }
        }
    }
}

/// Whether this process is a pod of the cluster: Kubernetes sets `KUBERNETES_SERVICE_HOST` in every
/// container, and the chart sets `POD_NAME`. A kubeconfig may lead to another cluster.
fn is_pod(args: &SchedulerArgs, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    variable("POD_NAME").is_some()
        || (args.kubeconfig.is_none()
            && variable("KUBECONFIG").is_none()
            && variable("KUBERNETES_SERVICE_HOST").is_some())
}

/// The address at which others reach a server. A server that listens on all addresses is reached by
/// the host's name.
fn reachable_address(address: SocketAddr, host: &str) -> String {
    if address.ip().is_unspecified() {
        return format!("{host}:{}", address.port());
    }
    address.to_string()
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "octavo-scheduler".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests;
