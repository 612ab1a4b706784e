//! Stands in for the container runtime: writes down what each container would get.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use serde::Serialize;

use super::cdi::{Catalogue, Edits};
use super::claims::requests_of;
use super::node::Node;

/// What a container would get, as `<container>.json` in its pod's folder tells it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Created<'a> {
    namespace: String,
    pod: String,
    container: &'a str,
    image: Option<&'a str>,
    cdi_devices: Vec<String>,
    #[serde(flatten)]
    edits: Edits,
}

/// A container that could not be created, and why.
#[derive(Debug)]
pub(super) struct Failed {
    /// Name of the container.
    pub(super) container: String,
    /// What the runtime says.
    pub(super) message: String,
}

/// Creates all containers of `pod`, each with the devices of the requests that it names only.
pub(super) fn create(node: &Node, pod: &Pod) -> Result<(), Failed> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let folder = node.pod_folder(&pod.uid().unwrap_or_default());
    let containers =
        init.iter().chain(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default());
    for container in containers {
        create_one(node, pod, container, &folder)
            .map_err(|message| Failed { container: container.name.clone(), message })?;
    }
    Ok(())
}

/// Removes what was written for the containers of pod `uid`.
pub(super) fn remove(node: &Node, uid: &str) {
    let folder = node.pod_folder(uid);
    match std::fs::remove_dir_all(&folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "pod folder not removed"),
    }
}

fn create_one(node: &Node, pod: &Pod, container: &Container, folder: &Path) -> Result<(), String> {
    let namespace = pod.namespace().unwrap_or_default();
    let requests = requests_of(pod, container);
    let cdi_devices = node.ledger().cdi_ids(&namespace, &requests);
    let edits = if cdi_devices.is_empty() {
        Edits::default()
    } else {
        let catalogue = Catalogue::read(&node.cdi()).map_err(|e| format!("read CDI specs: {e}"))?;
        catalogue.resolve(&cdi_devices).map_err(|e| e.to_string())?
    };
    let created = Created {
        namespace,
        pod: pod.name_any(),
        container: &container.name,
        image: container.image.as_deref(),
        cdi_devices,
        edits,
    };
    write(folder, &container.name, &created).map_err(|e| format!("write the container's file: {e}"))
}

fn write(folder: &Path, name: &str, created: &Created<'_>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Readers see the whole file or none.
    let next = folder.join(format!(".{name}.next"));
    std::fs::write(&next, serde_json::to_vec_pretty(created)?)?;
    std::fs::rename(&next, folder.join(format!("{name}.json")))
}
