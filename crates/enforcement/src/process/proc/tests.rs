use super::{Cgroups, Mount, Proc, Stat, cgroups_of, mount_of, stat_of};

#[test]
fn a_process_is_read_whatever_it_is_called() {
    let text = "12 (a) b (c) R 1 12 12 0 -1 4194308 1 0 0 0 0 0 0 0 20 0 3 0 4711 1 2";
    assert_eq!(stat_of(text), Some(Stat { parent: 1, start_time: 4711, is_exiting: true }));
    let text = "12 (x) R 1 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 4711";
    assert_eq!(stat_of(text), Some(Stat { parent: 1, start_time: 4711, is_exiting: false }));
    assert_eq!(stat_of("12 (x) R 1 2"), None);
}

#[test]
fn cgroups_are_read_of_both_versions_and_a_root_is_none() {
    let text = "5:freezer:/kubepods/pod1/c1\n4:memory:/other\n1:name=systemd:/\n0::/kubepods.slice/c1.scope\n";
    let expected = Cgroups {
        unified: Some("/kubepods.slice/c1.scope".to_owned()),
        freezer: Some("/kubepods/pod1/c1".to_owned()),
    };
    assert_eq!(cgroups_of(text), expected);
    assert_eq!(cgroups_of("6:cpu,freezer:/\n0::/\nnonsense"), Cgroups::default());
    assert_eq!(cgroups_of("0::/a:b\n").unified.as_deref(), Some("/a:b"));
}

#[test]
fn a_pod_is_known_by_the_names_of_its_cgroups() {
    let uid = "0f3cf6b4-8a5e-4c6e-9d0a-0123456789ab";
    let slice = uid.replace('-', "_");
    let of = |path: &str| {
        let unified = Cgroups { unified: Some(path.to_owned()), freezer: None };
        let freezer = Cgroups { unified: None, freezer: Some(path.to_owned()) };
        assert_eq!(unified.pod(), freezer.pod());
        unified.pod()
    };
    for path in [
        format!("/kubepods/pod{uid}/c1"),
        format!("/kubepods/burstable/pod{uid}/c1/pod11111111-8a5e-4c6e-9d0a-0123456789ab"),
        format!("/../../pod{uid}/c1"),
        format!("/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-c1.scope"),
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{slice}.slice/crio-c1.scope/child"
        ),
        format!("/../../kubepods-besteffort-pod{slice}.slice/cri-containerd-c1.scope"),
    ] {
        assert_eq!(of(&path).as_deref(), Some(uid), "{path}");
    }
    for path in ["/", "/system.slice/pods", "/pod1/c1", "/kubepods/pod-0f3cf6b4/c", "/pod/x"] {
        assert_eq!(of(path), None, "{path}");
    }
    assert_eq!(Cgroups::default().pod(), None);
}

#[test]
fn a_mount_has_a_file_system_and_a_root() {
    let line =
        "36 35 0:25 /octavo/shares/u_s /run/octavo/shares/u_s ro,noatime master:1 - tmpfs tmpfs rw";
    let expected = Mount { device: (0, 25), root: "/octavo/shares/u_s".to_owned() };
    assert_eq!(mount_of(line), Some(expected));
    assert_eq!(mount_of("36 35 x /"), None);
}

#[test]
fn this_process_is_seen_as_the_kernel_has_it() {
    let proc = Proc::new("/proc".into());
    let own = std::process::id();
    let stat = proc.stat(own).unwrap();
    assert!(stat.start_time > 0 && !stat.is_exiting);
    assert!(!proc.is_ending(own));
    let inside = proc.inside(own).unwrap();
    assert_eq!(inside.pid, u64::from(own), "in the innermost namespace");
    assert!(inside.namespace.is_some());
    assert_eq!(proc.stat(u32::MAX).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(proc.is_ending(u32::MAX), "it has ended");
}
