use super::*;

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.yaml");
    fs::write(&path, "nodeName: a\ndriverRot: /run/nvidia\n").unwrap();
    let error = NodeFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("driverRot"), "{error}");
    assert!(error.contains("line 2"), "{error}");
    assert!(error.contains("agent.yaml"), "{error}");
}

#[test]
fn an_empty_file_means_the_defaults_of_a_real_node() {
    let file = NodeFile::parse("# all default\n").unwrap();
    assert_eq!(file, NodeFile::default());
    assert!(matches!(file.clone().complete(), Err(ConfigError::NoNodeName)));
    let named = NodeFile { node_name: Some("a".to_owned()), ..file };
    let config = named.complete().unwrap();
    let paths = &config.paths;
    assert_eq!(paths.driver_root_seen, Path::new("/"));
    assert_eq!(paths.proc_root, Path::new("/proc"));
    assert_eq!(paths.cdi_root, Path::new("/var/run/cdi"));
    assert_eq!(paths.run_root, Path::new("/run"));
    assert_eq!(paths.hook_path, std::env::current_exe().unwrap());
    assert_eq!(config.plugin_folder(), Path::new("/var/lib/kubelet/plugins/gpu.nvidia.com"));
    assert_eq!(config.registry_folder(), Path::new("/var/lib/kubelet/plugins_registry"));
}

#[test]
fn seen_roots_default_to_host_roots() {
    let text = "nodeName: a\ndriverRoot: /run/nvidia/driver\n";
    let paths = NodeFile::parse(text).unwrap().complete().unwrap().paths;
    assert_eq!(paths.driver_root_seen, Path::new("/run/nvidia/driver"));
    let seen = NodeFile::parse(&format!("{text}driverRootSeen: /driver-root\n")).unwrap();
    let paths = seen.complete().unwrap().paths;
    assert_eq!(paths.driver_root, Path::new("/run/nvidia/driver"));
    assert_eq!(paths.driver_root_seen, Path::new("/driver-root"));
}

#[test]
fn flags_go_before_the_file() {
    let file = NodeFile::parse("nodeName: file\ncdiRoot: /file\n").unwrap();
    let flags = NodeFile { node_name: Some("flag".to_owned()), ..NodeFile::default() };
    let config = flags.or(file).complete().unwrap();
    assert_eq!(config.node_name, "flag");
    assert_eq!(config.paths.cdi_root, Path::new("/file"));
}

#[test]
fn a_relative_root_is_refused_by_name() {
    let error = NodeFile::parse("nodeName: a\nsysRoot: sys\n").unwrap().complete().unwrap_err();
    assert!(error.to_string().contains("sysRoot"), "{error}");
}

#[test]
fn every_folder_with_an_agent_file_is_a_node() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a", "empty"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    assert!(matches!(read_nodes(folder.path()), Err(ConfigError::NoNodes(_))));
    for name in ["b", "a"] {
        fs::write(folder.path().join(name).join("agent.yaml"), format!("nodeName: {name}\n"))
            .unwrap();
    }
    let nodes = read_nodes(folder.path()).unwrap();
    assert_eq!(nodes.iter().map(|node| node.node_name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn an_instance_id_that_would_lead_a_socket_elsewhere_is_refused() {
    let named = |id: &str| NodeFile {
        node_name: Some("a".to_owned()),
        instance_id: Some(id.to_owned()),
        ..NodeFile::default()
    };
    let error = named("../other").complete().unwrap_err().to_string();
    assert!(error.contains("../other") && error.contains("POD_UID"), "{error}");
    assert_eq!(named("").complete().unwrap().instance_id, None);
    let uid = "0b8a2e5c-9d7b-4f0e-8a65-3f1d2c4b5a69";
    assert_eq!(named(uid).complete().unwrap().instance_id.as_deref(), Some(uid));
}

#[test]
fn enforcement_and_mounts_can_be_configured() {
    let parse = |text: &str| NodeFile::parse(text);
    let text = "nodeName: a\nmemoryEnforcement: off\nsysRoot: /s\nmounts:\n- hostPath: /a\n  containerPath: /b\n\
        - {hostPath: /c, containerPath: /d, readOnly: false}\n";
    let config = parse(text).unwrap().complete().unwrap();
    assert_eq!(config.memory_enforcement, MemoryEnforcement::Off);
    assert_eq!(config.min_overflow_policy, OverflowPolicy::Kill);
    let weaker = parse("nodeName: a\nminOverflowPolicy: Report\n").unwrap().complete().unwrap();
    assert_eq!(weaker.min_overflow_policy, OverflowPolicy::Report);
    let seen = parse("nodeName: a\nhookDirSeen: /s\n").unwrap().complete().unwrap_err();
    assert!(seen.to_string().contains("hookDir is not"), "{seen}");
    let both = "nodeName: a\nhookDir: /h\nhookDirSeen: /s\n";
    let both = parse(both).unwrap().complete().unwrap();
    assert_eq!(both.paths.hook_path, Path::new("/h/octavo-cdi-hook"));
    assert_eq!(both.hook_path_seen, Path::new("/s/octavo-cdi-hook"));
    assert!(parse("minOverflowPolicy: Pause\n").unwrap_err().contains("Pause"));
    assert_eq!(config.paths.cgroup_root, Path::new("/s/fs/cgroup"));
    assert_eq!(config.paths.mounts, ["/a:/b".parse().unwrap(), "/c:/d:rw".parse().unwrap()]);
    assert_eq!(
        parse("nodeName: a\n").unwrap().complete().unwrap().memory_enforcement,
        MemoryEnforcement::Auto
    );
    for text in ["wall: off\n", "wall:\n", "nodeName: a\nwall: guard\n"] {
        let error = parse(text).unwrap_err();
        assert!(error.contains("`wall` is now `memoryEnforcement`"), "{error}");
    }
    let error = parse("memoryEnforcement: on\n").unwrap_err();
    assert!(error.contains("auto, guard, driver, off"), "{error}");
    let relative = "nodeName: a\nmounts: [{hostPath: a, containerPath: /b}]\n";
    let error = parse(relative).unwrap().complete().unwrap_err();
    assert!(error.to_string().contains("mounts.hostPath"), "{error}");
    assert!(parse("mounts: [{hostPath: /a, containerPath: /b, readonly: true}]\n").is_err());
    for text in ["/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:rw:x"] {
        assert!(text.parse::<HostMount>().is_err(), "{text}");
    }
}

#[test]
fn memory_is_swapped_only_with_leases_and_the_guard() {
    let complete = |text: &str| {
        let text = format!("nodeName: a\ndriverRootSeen: /driver-root\n{text}");
        NodeFile::parse(&text).unwrap().complete()
    };
    assert_eq!(complete("").unwrap().swap, None);
    let on = "memorySwap: processes\nswapHostMemory: 64Gi\n";
    let error = complete(on).unwrap_err().to_string();
    assert!(error.contains("timeEnforcement to leases"), "{error}");
    let swap = complete(&format!("{on}timeEnforcement: leases\n")).unwrap().swap.unwrap();
    assert_eq!((swap.host.bytes(), swap.driver_root), (Some(64 << 30), "/driver-root".into()));
}

#[test]
fn namespaces_may_be_exempt() {
    let text = |names: &str| format!("nodeName: a\nexemptNamespaces: {names}\n");
    let complete = |names: &str| NodeFile::parse(&text(names)).unwrap().complete();
    let config = complete("[kube-system, tools]").unwrap();
    assert_eq!(config.exempt_namespaces, ["kube-system", "tools"].map(str::to_owned).into());
    for names in ["[Kube-System]", "['']", "['*']"] {
        let error = complete(names).unwrap_err().to_string();
        assert!(error.contains("no name of a namespace"), "{error}");
    }
}
