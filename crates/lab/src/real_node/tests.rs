//! Tests of what follows from a lab's settings and folder alone.

use std::path::Path;

use super::*;

#[test]
fn two_state_folders_share_no_name_on_the_machine() {
    let id = |path: &str| lab_id(&Layout::new(Path::new(path)).unwrap());
    assert_eq!(id("/a/lab").len(), 8);
    assert_eq!(id("/a/lab"), id("/a/lab"));
    assert_ne!(id("/a/lab"), id("/b/lab"));
}

pub(super) fn settings(real: Option<RealNodes>) -> Settings {
    Settings {
        complete: true,
        started: String::new(),
        kubernetes: None,
        ports: crate::Ports::pick().unwrap(),
        control_plane: std::collections::BTreeMap::new(),
        octavo: "/octavo".into(),
        components: Vec::new(),
        more_args: std::collections::BTreeMap::new(),
        imex: octavo_api::imex::ImexSettings::default(),
        nodes: Vec::new(),
        real,
    }
}

pub(super) fn two_nodes() -> RealNodes {
    let nodes = "1:t4,1:l4".parse::<set::RealNodeSet>().unwrap().nodes();
    RealNodes { containerd: "/c".into(), network: 3, nodes, virtual_machines: None }
}

#[test]
fn the_api_server_leaves_loopback_only_for_real_nodes() {
    let layout = Layout::new(Path::new("/s")).unwrap();
    let flags = |settings: &Settings| {
        crate::cluster::component::command(crate::Component::KubeApiserver, &layout, settings).args
    };
    let without = flags(&settings(None));
    assert!(without.contains(&"--bind-address=127.0.0.1".to_owned()));
    assert!(!without.iter().any(|flag| flag.starts_with("--kubelet-client")));
    let with = flags(&settings(Some(two_nodes())));
    assert!(with.contains(&"--bind-address=198.18.3.1".to_owned()));
    assert!(with.iter().any(|flag| flag.starts_with("--kubelet-client-key=")));
}

#[test]
fn places_have_addresses_and_cgroups_of_their_own() {
    let layout = Layout::new(Path::new("/s")).unwrap();
    let settings = settings(Some(two_nodes()));
    let contexts: Vec<_> = node_contexts(&layout, &settings).collect();
    assert_eq!(contexts[1].address(), Ipv4Addr::new(198, 18, 3, 11));
    assert_ne!(contexts[0].cgroup(), contexts[1].cgroup());
    assert!(contexts[1].cgroup().ends_with("/real-1"), "{}", contexts[1].cgroup());
}

#[test]
fn settings_with_real_nodes_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path()).unwrap();
    std::fs::create_dir_all(layout.pki()).unwrap();
    for real in [None, Some(two_nodes())] {
        let written = settings(real);
        written.write(&layout).unwrap();
        assert_eq!(Settings::read(&layout).unwrap(), Some(written));
    }
}
