//! What a container gets for its devices: the plugins' answers, merged (pure).

use std::collections::{BTreeMap, BTreeSet};

use super::allocations::ContainerDevices;
use crate::kubelet::pods::cdi::{DeviceNode, Edits, Mount};

/// Begin of the annotations by which container runtimes find CDI names.
const CDI_ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

/// What a container gets for its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerOptions {
    /// Environment, mounts and device nodes.
    pub(crate) edits: Edits,
    /// Annotations for the container runtime.
    pub(crate) annotations: BTreeMap<String, String>,
    /// CDI names, those of annotations last.
    pub(crate) cdi_devices: Vec<String>,
}

impl ContainerOptions {
    /// Merges the answers of all resources of a container. As in the kubelet, the first of several equal names stays.
    pub(crate) fn of(devices: &ContainerDevices) -> Self {
        let mut options = Self::default();
        let (mut envs, mut names) = (BTreeMap::new(), BTreeSet::new());
        let answers = || devices.values().map(|allocated| &allocated.answer);
        for answer in answers() {
            for (name, value) in &answer.envs {
                envs.entry(name.clone()).or_insert_with(|| value.clone());
            }
            for (name, value) in &answer.annotations {
                options.annotations.entry(name.clone()).or_insert_with(|| value.clone());
            }
            for node in &answer.devices {
                let nodes = &mut options.edits.device_nodes;
                if nodes.iter().all(|old| old.path != node.container_path) {
                    nodes.push(device_node(
                        &node.container_path,
                        &node.host_path,
                        &node.permissions,
                    ));
                }
            }
            for mount in &answer.mounts {
                let mounts = &mut options.edits.mounts;
                if mounts.iter().all(|old| old.container_path != mount.container_path) {
                    mounts.push(bind(&mount.host_path, &mount.container_path, mount.read_only));
                }
            }
        }
        options.edits.env =
            envs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let in_fields = answers().flat_map(|it| it.cdi_devices.iter().map(|it| it.name.clone()));
        let annotations = options.annotations.iter();
        let annotations = annotations.filter(|(name, _)| name.starts_with(CDI_ANNOTATION_PREFIX));
        let in_annotations =
            annotations.flat_map(|(_, value)| value.split(',').map(|name| name.trim().to_owned()));
        let all = in_fields.chain(in_annotations);
        options.cdi_devices = all.filter(|name| names.insert(name.clone())).collect();
        options
    }
}

fn device_node(path: &str, host_path: &str, permissions: &str) -> DeviceNode {
    DeviceNode {
        path: path.to_owned(),
        host_path: Some(host_path.to_owned()),
        kind: None,
        major: None,
        minor: None,
        file_mode: None,
        permissions: Some(permissions.to_owned()).filter(|text| !text.is_empty()),
        uid: None,
        gid: None,
    }
}

/// A mount with the options that containerd gives those of the kubelet.
fn bind(host_path: &str, container_path: &str, is_read_only: bool) -> Mount {
    let access = if is_read_only { "ro" } else { "rw" };
    Mount {
        host_path: host_path.to_owned(),
        container_path: container_path.to_owned(),
        options: ["rbind", "rprivate", access].map(str::to_owned).into(),
        kind: None,
    }
}

#[cfg(test)]
mod tests {
    use octavo_kubelet_api::device_plugin::v1beta1 as wire;

    use super::*;
    use crate::kubelet::device_manager::allocations::Allocated;

    fn pairs<M: FromIterator<(String, String)>>(pairs: &[(&str, &str)]) -> M {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn answers_are_merged_and_the_first_of_equal_names_stays() {
        let answer = |number: &str| wire::ContainerAllocateResponse {
            envs: pairs(&[("SAME", number), (number, "x")]),
            mounts: vec![wire::Mount {
                container_path: "/in".to_owned(),
                host_path: format!("/host/{number}"),
                read_only: true,
            }],
            devices: vec![wire::DeviceSpec {
                container_path: format!("/dev/{number}"),
                host_path: "/dev/host".to_owned(),
                permissions: "rw".to_owned(),
            }],
            annotations: pairs(&[("cdi.k8s.io/p", "v/c=1,v/c=3"), (number, "y")]),
            cdi_devices: vec![wire::CdiDevice { name: format!("v/c={number}") }],
        };
        let devices = ["1", "2"].map(|number| {
            let allocated = Allocated { answer: answer(number), ..Allocated::default() };
            (format!("a/{number}"), allocated)
        });
        let options = ContainerOptions::of(&devices.into());
        assert_eq!(options.edits.env, ["1=x", "2=x", "SAME=1"]);
        assert_eq!(options.edits.mounts.len(), 1);
        assert_eq!(options.edits.mounts[0].host_path, "/host/1");
        assert_eq!(options.edits.mounts[0].options, ["rbind", "rprivate", "ro"]);
        let nodes = options.edits.device_nodes.iter();
        assert_eq!(nodes.map(|node| node.path.as_str()).collect::<Vec<_>>(), ["/dev/1", "/dev/2"]);
        assert_eq!(options.annotations.len(), 3);
        assert_eq!(options.cdi_devices, ["v/c=1", "v/c=2", "v/c=3"]);
        assert_eq!(ContainerOptions::of(&BTreeMap::new()), ContainerOptions::default());
    }
}
