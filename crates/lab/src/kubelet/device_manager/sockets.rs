//! The sockets of a node's device manager. A node without plugins costs these two, and a task that waits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::Stream;
use octavo_kubelet_api::device_plugin::v1beta1::registration_server::RegistrationServer;
use octavo_kubelet_api::pod_resources::v1::pod_resources_lister_server::PodResourcesListerServer;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::TaskTracker;
use tonic::transport::Server;

use super::pod_resources::PodResourcesService;
use super::registration::{RegistrationService, forget_later};
use crate::kubelet::node::Node;

/// Name of the socket at which plugins register, in their folder.
const REGISTRATION_SOCKET: &str = "kubelet.sock";
/// Pause after a connection that could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens at both sockets, and serves them until the node's shutdown. As in the kubelet, other sockets of the plugins'
/// folder are removed first: plugins see by that that they must register again.
pub(crate) fn serve(node: &Arc<Node>, tasks: &TaskTracker) -> anyhow::Result<()> {
    let manager = &node.devices;
    remove_sockets(&manager.folder)
        .with_context(|| format!("remove the sockets of {}", manager.folder.display()))?;
    let registrations = listen(&manager.folder.join(REGISTRATION_SOCKET))?;
    let pod_resources = listen(&manager.pod_resources_socket)?;
    let service = RegistrationService { node: Arc::clone(node), tasks: tasks.clone() };
    let registrations = Server::builder()
        .add_service(RegistrationServer::new(service))
        .serve_with_incoming(Box::pin(connections(registrations)));
    let service = PodResourcesService { node: Arc::clone(node) };
    let pod_resources = Server::builder()
        .add_service(PodResourcesListerServer::new(service))
        .serve_with_incoming(Box::pin(connections(pod_resources)));
    let shutdown = node.shutdown.clone();
    let name = node.name.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            ended = registrations => tracing::warn!(node = name, ?ended, "no more registrations"),
            ended = pod_resources => tracing::warn!(node = name, ?ended, "no more PodResources"),
        }
    });
    // Plugins of an earlier process may never come back.
    let awaited: Vec<String> = manager.state().resources.names().cloned().collect();
    for resource in awaited {
        let node = Arc::clone(node);
        tasks.spawn(async move {
            let forget = forget_later(&node, &resource, 0);
            node.shutdown.run_until_cancelled(forget).await;
        });
    }
    Ok(())
}

fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let bind = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        UnixListener::bind(path)
    };
    bind().with_context(|| format!("listen at {}", path.display()))
}

fn connections(listener: UnixListener) -> impl Stream<Item = std::io::Result<UnixStream>> {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        if accepted.is_err() {
            // Probably out of file descriptors, which other connections must free first.
            tokio::time::sleep(ACCEPT_RETRY).await;
        }
        Some((accepted, listener))
    })
}

fn remove_sockets(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            match std::fs::remove_file(entry.path()) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}
