//! Replaces the container runtime: records what each container would get.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use serde::Serialize;

use crate::kubelet::claims::claim_info::ClaimResources;
use crate::kubelet::claims::requests_of;
use crate::kubelet::device_manager::options::ContainerOptions;
use crate::kubelet::node::Node;
use crate::kubelet::pods::cdi::{Catalogue, Edits, Mount};

/// Content of `<container>.json` in the pod's folder.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerRecord<'a> {
    namespace: String,
    pod: String,
    container: &'a str,
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    cdi_devices: Vec<String>,
    /// The container's claims in the kubelet's pod resources API.
    dynamic_resources: Vec<ClaimResources>,
    #[serde(flatten)]
    edits: Edits,
}

/// A container that could not be created.
#[derive(Debug)]
pub(crate) struct CreateFailure {
    /// Name of the container.
    pub(crate) container: String,
    /// Waiting reason, as in the kubelet.
    pub(crate) reason: &'static str,
    /// Error text of the runtime.
    pub(crate) message: String,
}

/// Creates all containers of `pod`. Each gets only the devices of the requests that it names, and those that plugins gave it.
pub(crate) fn create(node: &Node, pod: &Pod) -> Result<(), CreateFailure> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let folder = node.pod_folder(&pod.uid().unwrap_or_default());
    let containers =
        init.iter().chain(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default());
    for container in containers {
        create_one(node, pod, container, &folder).map_err(|(reason, message)| CreateFailure {
            container: container.name.clone(),
            reason,
            message,
        })?;
    }
    Ok(())
}

/// The variables that a created container gets from its CDI devices, `NAME=value`.
pub(crate) fn cdi_variables(
    node: &Node,
    uid: &str,
    container: &str,
) -> std::io::Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Record {
        #[serde(default)]
        env: Vec<String>,
    }
    let text = std::fs::read(node.pod_folder(uid).join(format!("{container}.json")))?;
    Ok(serde_json::from_slice::<Record>(&text)?.env)
}

/// Removes the records of pod `uid`.
pub(crate) fn remove(node: &Node, uid: &str) {
    let folder = node.pod_folder(uid);
    match std::fs::remove_dir_all(&folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "pod folder not removed"),
    }
}

fn create_one(
    node: &Node,
    pod: &Pod,
    container: &Container,
    folder: &Path,
) -> Result<(), (&'static str, String)> {
    let refused = |message: String| ("CreateContainerError", message);
    let namespace = pod.namespace().unwrap_or_default();
    let requests = requests_of(pod, container);
    let (mut cdi_devices, dynamic_resources) = {
        let cache = node.claim_infos();
        (cache.cdi_ids(&namespace, &requests), cache.resources(&namespace, &requests))
    };
    let options = node.devices.options(&pod.uid().unwrap_or_default(), &container.name);
    let ContainerOptions { edits: mut all_edits, annotations, cdi_devices: of_plugins } = options;
    for name in of_plugins {
        if !cdi_devices.contains(&name) {
            cdi_devices.push(name);
        }
    }
    let edits = if cdi_devices.is_empty() {
        Edits::default()
    } else {
        let catalogue =
            Catalogue::read(&node.cdi()).map_err(|e| refused(format!("read CDI specs: {e}")))?;
        catalogue.resolve(&cdi_devices).map_err(|e| refused(e.to_string()))?
    };
    // The runtime creates such a container, but its first process fails to start.
    edits
        .mounts
        .iter()
        .try_for_each(check_mount)
        .map_err(|message| ("RunContainerError", message))?;
    all_edits.apply(&edits);
    let record = ContainerRecord {
        namespace,
        pod: pod.name_any(),
        container: &container.name,
        image: container.image.as_deref(),
        annotations,
        cdi_devices,
        dynamic_resources,
        edits: all_edits,
    };
    write(folder, &container.name, &record)
        .map_err(|e| refused(format!("write the container's file: {e}")))
}

/// Fails for a bind mount without a source; the text is runc's.
fn check_mount(mount: &Mount) -> Result<(), String> {
    let is_bind = mount.kind.as_deref().is_none_or(|kind| kind.is_empty() || kind == "bind");
    match std::fs::metadata(&mount.host_path) {
        Err(error) if is_bind && error.kind() == std::io::ErrorKind::NotFound => Err(format!(
            "failed to create containerd task: failed to create shim task: OCI runtime create \
             failed: runc create failed: unable to start container process: error during container \
             init: error mounting {host:?} to rootfs at {inside:?}: stat {host}: no such file or \
             directory",
            host = mount.host_path,
            inside = mount.container_path,
        )),
        _ => Ok(()),
    }
}

fn write(folder: &Path, name: &str, record: &ContainerRecord<'_>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Atomic: readers see the whole file or none.
    let next = folder.join(format!(".{name}.next"));
    std::fs::write(&next, serde_json::to_vec_pretty(record)?)?;
    std::fs::rename(&next, folder.join(format!("{name}.json")))
}
