use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_node::ClaimRef;
use tempfile::TempDir;

use super::{Candidate, OwnedProcess, ProcessIdentities};
use crate::process::Process;
use crate::process::proc::Proc;
use crate::watchdog::consumers::{ClaimConsumers, Reader};
use crate::watchdog::guards::reports::GuardReports;

/// A proc file system that a test writes, and shares.
struct Fixture {
    folder: TempDir,
    shares: Vec<(String, PathBuf, String, GuardReports, ClaimRef)>,
    consumers: Arc<ClaimConsumers>,
    reader: Reader,
}

impl Fixture {
    fn new() -> Self {
        let (folder, (consumers, reader)) = (tempfile::tempdir().unwrap(), ClaimConsumers::new());
        let fixture = Self { folder, shares: Vec::new(), consumers: Arc::new(consumers), reader };
        fixture.put("self/cgroup", "0::/agent.scope\n");
        fixture
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.folder.path().join("proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn share(&mut self, name: &str, gpu: &str) {
        let folder = self.folder.path().join("run/octavo/shares").join(name);
        fs::create_dir_all(&folder).unwrap();
        let uid = name.to_owned();
        let claim = ClaimRef { namespace: "team".to_owned(), name: name.to_owned(), uid };
        self.shares.push((name.to_owned(), folder, gpu.to_owned(), GuardReports::default(), claim));
    }

    fn process(&self, pid: u32, start_time: u64, cgroup: &str, mounts: &str) {
        let stat = format!("{pid} (p) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_time} 0");
        self.put(&format!("{pid}/stat"), &stat);
        self.put(&format!("{pid}/cgroup"), &format!("0::{cgroup}\n"));
        self.put(&format!("{pid}/mountinfo"), mounts);
        self.put(&format!("{pid}/status"), &format!("Name:\tp\nNSpid:\t{pid}\t7\n"));
    }

    /// A line of `mountinfo` for a share's folder as its container has it.
    fn mount(&self, name: &str, below: &str) -> String {
        let (_, folder, ..) = self.shares.iter().find(|share| share.0 == name).unwrap();
        let device = fs::metadata(folder).unwrap().dev();
        line(device, &folder.join(below), name, below)
    }

    fn of(&self, identities: &mut ProcessIdentities, pid: u32, gpu: &str) -> Option<String> {
        let shares = self.owned(identities, pid, gpu).shares;
        (!shares.is_empty()).then(|| shares.join("+"))
    }

    fn owned(&self, identities: &mut ProcessIdentities, pid: u32, gpu: &str) -> OwnedProcess {
        let candidates: Vec<_> = self
            .shares
            .iter()
            .map(|(name, folder, gpu, guard_reports, claim)| Candidate {
                name,
                claim,
                folder,
                gpu,
                guard_reports,
            })
            .collect();
        identities.of(pid, gpu, &candidates).unwrap()
    }

    fn identities(&self) -> ProcessIdentities {
        ProcessIdentities::new(
            Proc::new(self.folder.path().join("proc")),
            Some(Arc::clone(&self.consumers)),
        )
    }
}

fn line(device: u64, root: &Path, name: &str, below: &str) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let slash = if below.is_empty() { "" } else { "/" };
    format!(
        "30 20 0:40 / / rw - overlay overlay rw\n\
         36 35 {major}:{minor} {} /run/octavo/shares/{name}{slash}{below} ro - tmpfs tmpfs rw\n",
        root.display()
    )
}

#[test]
fn a_process_is_of_the_share_that_it_connected_to() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.process(10, 100, "/c1", "");
    let mut identities = fixture.identities();
    assert_eq!(fixture.of(&mut identities, 10, "GPU-1"), None);
    fixture.shares[0].3.connect(Process { pid: 10, start_time: 100 });
    assert_eq!(fixture.of(&mut identities, 10, "GPU-1").as_deref(), Some("u_a"));
    // Others of its container are so, too, without a word.
    fixture.process(11, 101, "/c1", "");
    assert_eq!(fixture.of(&mut identities, 11, "GPU-1").as_deref(), Some("u_a"));
    fixture.process(12, 102, "/c2", "");
    assert_eq!(fixture.of(&mut identities, 12, "GPU-1"), None);
    // Another process that got its pid is not.
    fixture.process(10, 200, "/c2", "");
    assert_eq!(fixture.of(&mut identities, 10, "GPU-1"), None);
    assert!(identities.of(99, "GPU-1", &[]).is_err(), "it is gone");
}

#[test]
fn a_process_is_of_the_share_that_is_mounted_in_its_container() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.share("u_b", "GPU-2");
    fixture.process(10, 100, "/c1", &fixture.mount("u_a", ""));
    fixture.process(11, 101, "/c2", &(fixture.mount("u_a", "state") + &fixture.mount("u_b", "")));
    let mut identities = fixture.identities();
    assert_eq!(fixture.of(&mut identities, 10, "GPU-1").as_deref(), Some("u_a"));
    assert_eq!(fixture.of(&mut identities, 10, "GPU-2"), None, "it has none of that GPU");
    assert_eq!(fixture.of(&mut identities, 11, "GPU-1").as_deref(), Some("u_a"));
    assert_eq!(fixture.of(&mut identities, 11, "GPU-2").as_deref(), Some("u_b"));
    let candidates = [];
    let owned = identities.of(10, "GPU-1", &candidates).unwrap();
    assert_eq!(owned.inside.map(|inside| inside.pid), Some(7));
    // A process without its mount is identified by its cgroup.
    fixture.process(12, 102, "/c1", "");
    assert_eq!(fixture.of(&mut identities, 12, "GPU-1").as_deref(), Some("u_a"));
    // The mount point does not matter.
    let moved = fixture.mount("u_a", "").replace("/run/octavo", "/run/x");
    fixture.process(13, 103, "/c3", &moved);
    assert_eq!(fixture.of(&mut identities, 13, "GPU-1").as_deref(), Some("u_a"));
}

#[test]
fn a_cgroup_identifies_nothing_without_a_cluster() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.share("u_b", "GPU-1");
    // As two terminals of one session.
    fixture.process(10, 100, "/session-1.scope", &fixture.mount("u_a", ""));
    fixture.process(11, 101, "/session-1.scope", &fixture.mount("u_b", ""));
    fixture.process(12, 102, "/session-1.scope", "");
    let mut identities =
        ProcessIdentities::new(Proc::new(fixture.folder.path().join("proc")), None);
    for (pid, share) in [(10, Some("u_a")), (11, Some("u_b")), (12, None)] {
        assert_eq!(fixture.of(&mut identities, pid, "GPU-1").as_deref(), share, "{pid}");
    }
}

#[test]
fn who_never_spoke_and_sees_no_mount_is_known_by_its_pod() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.share("u_b", "GPU-1");
    fixture.share("u_c", "GPU-2");
    let (own, other) =
        ("0f3cf6b4-8a5e-4c6e-9d0a-0123456789ab", "11111111-8a5e-4c6e-9d0a-0123456789ab");
    fixture.process(10, 100, &format!("/kubepods/pod{own}/c1"), "");
    fixture.process(11, 101, &format!("/kubepods/pod{other}/c2"), "");
    fixture.process(12, 102, "/system/c3", "");
    let mut identities = fixture.identities();
    let found = |fixture: &Fixture, identities: &mut ProcessIdentities, pid| {
        let owned = fixture.owned(identities, pid, "GPU-1");
        (owned.shares.join("+"), owned.is_asked)
    };
    for pid in [10, 11] {
        assert_eq!(found(&fixture, &mut identities, pid), (String::new(), true), "is found out");
    }
    assert_eq!(found(&fixture, &mut identities, 12), (String::new(), false));
    fixture.reader.answer("u_a", &[own]);
    fixture.reader.answer("u_b", &["22222222-8a5e-4c6e-9d0a-0123456789ab"]);
    assert_eq!(found(&fixture, &mut identities, 10), ("u_a".to_owned(), false));
    assert_eq!(found(&fixture, &mut identities, 11), (String::new(), false));
    // The container's shares take precedence over the pod's.
    fixture.process(13, 103, &format!("/kubepods/pod{own}/c4"), &fixture.mount("u_b", ""));
    assert_eq!(found(&fixture, &mut identities, 13), ("u_b".to_owned(), false));
    fixture.reader.answer("u_c", &["22222222-8a5e-4c6e-9d0a-0123456789ab"]);
    assert_eq!(
        fixture.owned(&mut identities, 10, "GPU-2").shares,
        [""; 0],
        "a GPU of another claim"
    );
}

#[test]
fn a_container_may_have_two_shares_of_one_gpu() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.share("u_b", "GPU-1");
    fixture.process(10, 100, "/c1", &(fixture.mount("u_b", "") + &fixture.mount("u_a", "state")));
    let mut identities = fixture.identities();
    assert_eq!(fixture.of(&mut identities, 10, "GPU-1").as_deref(), Some("u_a+u_b"));
}

#[test]
fn a_mount_that_only_looks_like_a_share_says_nothing() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    let (_, folder, ..) = &fixture.shares[0];
    let device = fs::metadata(folder).unwrap().dev();
    let other_device = line(device + 1, folder, "u_a", "");
    let other_folder = line(device, Path::new("/tmp/u_a"), "u_a", "");
    let other_file = fixture.mount("u_a", "limits");
    for (pid, mounts) in [(10, other_device), (11, other_folder), (12, other_file)] {
        fixture.process(pid, 100, &format!("/c{pid}"), &mounts);
        assert_eq!(fixture.of(&mut fixture.identities(), pid, "GPU-1"), None, "{mounts}");
    }
}

#[test]
fn the_agent_s_own_cgroup_and_the_root_tell_nothing() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    let mut identities = fixture.identities();
    for (pid, cgroup) in [(10, "/"), (20, "/agent.scope")] {
        fixture.process(pid, 100, cgroup, &fixture.mount("u_a", ""));
        assert_eq!(fixture.of(&mut identities, pid, "GPU-1").as_deref(), Some("u_a"));
        fixture.process(pid + 1, 101, cgroup, "");
        assert_eq!(fixture.of(&mut identities, pid + 1, "GPU-1"), None, "{cgroup}");
    }
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.share("u_a", "GPU-1");
    fixture.process(10, 100, "/c1", &fixture.mount("u_a", ""));
    fixture.process(11, 101, "/c1", "");
    let mut identities = fixture.identities();
    fixture.of(&mut identities, 10, "GPU-1");
    identities.keep(&[11].into(), &["u_a"].into());
    assert_eq!(fixture.of(&mut identities, 11, "GPU-1").as_deref(), Some("u_a"));
    assert!(identities.cgroups(Process { pid: 10, start_time: 100 }).is_none());
    identities.keep(&[11].into(), &[].into());
    assert_eq!(fixture.of(&mut identities, 11, "GPU-1"), None);
}
