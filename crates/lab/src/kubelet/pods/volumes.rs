//! Volumes of Secrets, for containers that run as processes: folders of files below the pod's folder.
//!
//! As with the kubelet, a pod waits for its Secrets before it gets an address, and keeps what it has read.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use crate::cluster::pki;
use crate::kubelet::claims::prepare;
use crate::kubelet::node::Node;
use crate::kubelet::pods::processes;
use crate::kubelet::within;

/// Mounts a pod's Secrets and prepares its claims. The error is reason and note of an event.
pub(crate) async fn set_up(node: &Node, pod: &Pod) -> Result<(), (&'static str, String)> {
    if processes::container_of(pod).is_some() {
        let folder = node.pod_folder(&pod.uid().unwrap_or_default());
        let mounted = mount(&node.client, pod, &folder).await;
        mounted.map_err(|error| ("FailedMount", format!("MountVolume.SetUp failed: {error:#}")))?;
    }
    prepare::prepare(node, pod).await.map_err(|error| {
        let note = format!("Failed to prepare dynamic resources: {error}");
        ("FailedPrepareDynamicResources", note)
    })
}

/// Where a container finds the mounts of its Secrets: path in the container, and folder of this machine.
pub(crate) fn folders(pod: &Pod, container: &Container, folder: &Path) -> Vec<(String, PathBuf)> {
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.filter(|mount| secrets(pod).any(|(volume, _)| volume == mount.name));
    mounts.map(|mount| (mount.mount_path.clone(), place(folder, &mount.name))).collect()
}

async fn mount(client: &Client, pod: &Pod, folder: &Path) -> anyhow::Result<()> {
    for (volume, name) in secrets(pod) {
        let place = place(folder, volume);
        if place.exists() {
            continue;
        }
        let api: Api<Secret> =
            Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let secret = within(api.get(name)).await;
        let secret = secret.with_context(|| format!("read Secret {name} of volume {volume}"))?;
        let next = place.with_extension("next");
        std::fs::create_dir_all(&next).with_context(|| format!("create {}", next.display()))?;
        for (key, value) in secret.data.iter().flatten() {
            pki::write_secret(&next.join(key), &String::from_utf8_lossy(&value.0))?;
        }
        std::fs::rename(&next, &place).with_context(|| format!("make {}", place.display()))?;
    }
    Ok(())
}

/// Volume and name of each Secret.
fn secrets(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        Some((volume.name.as_str(), volume.secret.as_ref()?.secret_name.as_deref()?))
    })
}

fn place(folder: &Path, volume: &str) -> PathBuf {
    folder.join("volumes").join(volume)
}

#[cfg(test)]
mod tests {
    use octavo_testkit::FakeApi;
    use serde_json::json;

    use super::*;

    const SECRETS: &str = "/api/v1/secrets";

    fn pod() -> Pod {
        let mounts =
            json!([{"name": "tls", "mountPath": "/tls"}, {"name": "a", "mountPath": "/a"}]);
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "octavo", "uid": "u"},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": mounts}],
                "volumes": [{"name": "tls", "secret": {"secretName": "s"}}, {"name": "a", "emptyDir": {}}],
            },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_pod_waits_for_its_secret_and_keeps_what_it_has_read() {
        let (api, folder, pod) = (FakeApi::default(), tempfile::tempdir().unwrap(), pod());
        let error = mount(&api.client(), &pod, folder.path()).await.unwrap_err();
        assert!(format!("{error:#}").contains("Secret s of volume tls"), "{error:#}");

        let secret = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "namespace": "octavo"}, "data": {"tls.key": value},
            })
        };
        for value in ["b25l", "dHdv"] {
            api.put(SECRETS, secret(value));
            mount(&api.client(), &pod, folder.path()).await.unwrap();
            let container = &pod.spec.as_ref().unwrap().containers[0];
            let folders = folders(&pod, container, folder.path());
            let [(path, place)] = folders.as_slice() else { panic!("{folders:?}") };
            assert_eq!(path, "/tls");
            assert_eq!(std::fs::read_to_string(place.join("tls.key")).unwrap(), "one");
        }
    }
}
