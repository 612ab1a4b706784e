//! The sockets of a node's resources, and their registration with the kubelet.
//!
//! ```text
//! /var/lib/kubelet/device-plugins/kubelet.sock         the kubelet's: plugins register there
//! /var/lib/kubelet/device-plugins/nvidia-<name>.sock   ours, one for each resource
//! ```
//!
//! A kubelet that starts removes all sockets of the folder, and knows no plugin. Each resource has a task of its own, so a new
//! list of one does not disturb the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use octavo_kube_io::Backoff;
use octavo_kubelet_api::device_plugin::v1beta1::RegisterRequest;
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_server::DevicePluginServer;
use octavo_kubelet_api::device_plugin::v1beta1::registration_client::RegistrationClient;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Endpoint, Server};

use super::Offer;
use super::service::{self, AllocationCounter, ResourceService};
use crate::kubelet::socket::{Socket, SocketError, identity};
use crate::problems::Problems;

/// The kubelet's socket there.
const KUBELET_SOCKET: &str = "kubelet.sock";
/// Version of the contract.
const VERSION: &str = "v1beta1";
/// Begin of our sockets' names, as of NVIDIA's plugin.
const SOCKET_PREFIX: &str = "nvidia-";

/// Interval of looks at the sockets.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a kubelet that follows no list has forgotten the resource.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which the kubelet takes the list of a resource without devices.
const WITHDRAWAL_TIME: Duration = Duration::from_secs(3);
/// Pause after a connection that could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time for a registration.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failure: at first, and at most.
const RETRY: Duration = Duration::from_millis(200);
const MAX_RETRY: Duration = Duration::from_secs(10);
/// The delay from which on a failure is a problem to tell.
const PROBLEM_DELAY: Duration = Duration::from_secs(1);

/// Serves all resources of a node until `stop`. One that is offered no more is listed without devices, and then ends: while a plugin is
/// registered, its end would disconnect another one that took the resource over (`runClient` in the kubelet's device manager).
pub(crate) async fn serve(
    folder: PathBuf,
    mut offers: watch::Receiver<Arc<Offer>>,
    problems: watch::Sender<Problems>,
    metrics: AllocationCounter,
    stop: CancellationToken,
) {
    // A child: this task's end is not that of the agent's other tasks.
    let (tasks, stop) = (TaskTracker::new(), stop.child_token());
    let mut served: BTreeSet<String> = BTreeSet::new();
    loop {
        let offer = Arc::clone(&offers.borrow_and_update());
        for resource in offer.resources() {
            if served.insert(resource.name.clone()) {
                let service = ServedResource {
                    path: socket_path(&folder, &resource.name),
                    kubelet: folder.join(KUBELET_SOCKET),
                    resource: resource.name.clone(),
                    offers: offers.clone(),
                    problems: problems.clone(),
                    metrics: metrics.clone(),
                };
                tasks.spawn(service.serve(stop.clone()));
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = offers.changed() => if changed.is_err() { break },
        }
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// The socket of a resource.
fn socket_path(folder: &Path, resource: &str) -> PathBuf {
    let name = resource.split_once('/').map_or(resource, |(_, name)| name);
    folder.join(format!("{SOCKET_PREFIX}{name}.sock"))
}

/// A resource, its socket and the kubelet's.
struct ServedResource {
    path: PathBuf,
    kubelet: PathBuf,
    resource: String,
    offers: watch::Receiver<Arc<Offer>>,
    problems: watch::Sender<Problems>,
    metrics: AllocationCounter,
}

impl ServedResource {
    /// Serves it while it has devices until `stop`, again after each start of the kubelet.
    async fn serve(self, stop: CancellationToken) {
        let resource = self.resource.as_str();
        let mut offers = self.offers.clone();
        let mut backoff = Backoff::new(RETRY, MAX_RETRY);
        while !stop.is_cancelled() {
            if !has_devices(&offers.borrow(), resource) {
                self.set_problem(None);
            }
            let offered = offers.wait_for(|offer| has_devices(offer, resource));
            if !matches!(stop.run_until_cancelled(offered).await, Some(Ok(_))) {
                return;
            }
            match Socket::bind(&self.path) {
                Ok(socket) => {
                    backoff.reset();
                    self.set_problem(None);
                    let run = stop.child_token();
                    stop.run_until_cancelled(Box::pin(self.serve_at(socket, &run))).await;
                    run.cancel();
                }
                Err(error) => {
                    tracing::warn!(%resource, %error, "the resource is not served yet");
                    let delay = backoff.next_delay();
                    // A predecessor may need a moment to go.
                    if delay >= PROBLEM_DELAY {
                        self.set_problem(Some(error));
                    }
                    stop.run_until_cancelled(sleep(delay)).await;
                }
            }
        }
    }

    /// Notes why the resource is not served.
    fn set_problem(&self, problem: Option<SocketError>) {
        let note = problem.map(|problem| match problem {
            SocketError::Busy(path) => format!(
                "another device plugin serves {} at {}; end it, or set this node's mode to dra",
                self.resource,
                path.display()
            ),
            other => format!("{} is not served: {other}", self.resource),
        });
        self.problems.send_if_modified(|all| all.set_of("ResourceNotServed", &self.resource, note));
    }

    /// Serves it at a socket, until the kubelet has forgotten it.
    async fn serve_at(&self, socket: Socket, run: &CancellationToken) {
        let Self { path, kubelet, resource, offers, .. } = self;
        let (found, file) = (identity(kubelet), socket.file());
        let followed = Arc::new(AtomicUsize::new(0));
        let service = ResourceService::new(
            resource.clone(),
            offers.clone(),
            Arc::clone(&followed),
            self.metrics.clone(),
            run.clone(),
        );
        let connections = futures::stream::unfold(socket, |socket| async move {
            let connection = socket.accept().await;
            if connection.is_err() {
                // Probably out of file descriptors, which other connections must free first.
                sleep(ACCEPT_RETRY).await;
            }
            Some((connection, socket))
        });
        let server = Server::builder()
            .add_service(DevicePluginServer::new(service))
            .serve_with_incoming_shutdown(Box::pin(connections), run.clone().cancelled_owned());
        let registration = register(kubelet, path, resource);
        let lost = async {
            let mut looks = interval(LOOK_INTERVAL);
            let (mut since, mut offered_at) = (Instant::now(), Instant::now());
            loop {
                looks.tick().await;
                if has_devices(&offers.borrow(), resource) {
                    offered_at = Instant::now();
                }
                if offered_at.elapsed() > WITHDRAWAL_TIME {
                    tracing::info!(%resource, "the resource is offered no more");
                    return;
                }
                if followed.load(Ordering::Relaxed) > 0 {
                    since = Instant::now();
                }
                let is_forgotten = since.elapsed() > FOLLOW_TIMEOUT && kubelet.exists();
                let is_moved = identity(kubelet) != found || identity(path) != file;
                if is_moved || is_forgotten || file.is_none() {
                    tracing::info!(%resource, "the kubelet does not follow the resource: it is registered again");
                    return;
                }
            }
        };
        tokio::select! {
            ended = server => tracing::warn!(%resource, ?ended, "the service of the resource has ended; starting it again"),
            () = lost => {}
            () = async { registration.await; std::future::pending().await } => {}
        }
    }
}

/// Whether there is a device of a resource, healthy or not.
fn has_devices(offer: &Offer, resource: &str) -> bool {
    offer.resource(resource).is_some_and(|resource| !resource.devices.is_empty())
}

/// Registers a resource, with retries until it succeeds.
async fn register(kubelet: &Path, socket: &Path, resource: &str) {
    let mut backoff = Backoff::new(RETRY, MAX_RETRY);
    let mut problem = None;
    loop {
        let result = match timeout(REGISTER_TIMEOUT, try_register(kubelet, socket, resource)).await
        {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", REGISTER_TIMEOUT.as_secs())),
        };
        match result {
            Ok(()) => {
                tracing::info!(%resource, "the kubelet has the resource");
                return;
            }
            Err(error) if problem.as_ref() != Some(&error) => {
                tracing::warn!(%resource, %error, "the kubelet has not taken the resource; trying again");
                problem = Some(error);
            }
            Err(_) => {}
        }
        sleep(backoff.next_delay()).await;
    }
}

async fn try_register(kubelet: &Path, socket: &Path, resource: &str) -> anyhow::Result<()> {
    let channel = Endpoint::try_from(format!("unix://{}", kubelet.display()))?.connect().await?;
    let endpoint = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint,
        resource_name: resource.to_owned(),
        options: Some(service::options()),
    };
    RegistrationClient::new(channel).register(request).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
