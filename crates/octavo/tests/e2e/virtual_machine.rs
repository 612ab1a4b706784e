//! A node that is a virtual machine: Debian's kernel, systemd, cgroup version 2 alone, `AppArmor`. It
//! is emulated, and so these tests are slow: `make vm` runs them.

use std::io::Write as _;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::DeleteParams;
use octavo_lab::{Lab, UpOptions, virtual_machine_obstacle};
use serde_json::{Value, json};

use crate::memory_enforcement::{
    a_bypass_and_a_spoiled_table_are_stopped, eight_shares_are_enforced, remove,
};
use crate::real_node::{
    INSPECT_SCRIPT, a_module_may_come_late_and_with_another_number, allocated_gpu,
    assert_sees_its_gpu, lock_real_nodes, log_of, parts_of_gpus_have_their_files, restarts,
    shell_pod,
};
use crate::testbed::{OCTAVO, Testbed, claim, eventually};

/// Environment variable with which the test runs.
const ASKED: &str = "OCTAVO_TEST_VIRTUAL_MACHINE";

const NODE: &str = "real-0";

/// Prints what kind of machine a container is on, and how it is confined.
const MACHINE_SCRIPT: &str = "\
    echo kernel=$(uname -r); \
    echo cgroup=$(grep -c ' - cgroup ' /proc/self/mountinfo) $(grep -c ' - cgroup2 ' /proc/self/mountinfo); \
    echo profile=$(cat /proc/self/attr/current); \
    echo apparmor=$(cat /sys/module/apparmor/parameters/enabled)";

/// Prints the cgroups of all containers of the node, as its first process sees them.
const CGROUPS_SCRIPT: &str = "\
    echo init=$(cat /proc/1/comm); \
    cat /proc/[0-9]*/cgroup | sort -u; \
    echo agent=$(for p in /proc/[0-9]*; do \
      grep -q '^octavo.agent' $p/cmdline 2>/dev/null && cat $p/attr/current; done)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_limits_hold_on_a_machine_with_systemd_and_apparmor() {
    if std::env::var_os(ASKED).is_none() {
        let _ = writeln!(std::io::stderr(), "skipped, for it takes ten minutes: run `make vm`");
        return;
    }
    let Some(_guard) = lock_real_nodes().await else { panic!("no real node can run here") };
    assert_eq!(virtual_machine_obstacle(), None, "no virtual machine can run here");
    let testbed = Testbed::up_virtual("1:dgx-h100").await;
    step("the node is ready");
    the_machine_is_what_it_claims(&testbed).await;

    a_module_may_come_late_and_with_another_number(&testbed, NODE).await;
    step("a late kernel module holds a pod up until it is loaded");
    testbed.create::<ResourceClaim>(claim("one", &json!([]))).await;
    let log = log_of(&testbed, shell_pod("one", NODE, INSPECT_SCRIPT, &["one"])).await;
    assert_sees_its_gpu(&log, allocated_gpu(&testbed, "one").await);
    step("a container has its GPU, and may open no other");
    parts_of_gpus_have_their_files(&testbed).await;
    step("shares and MIG devices have their files");
    let report = testbed.octavo_ok(&["doctor", "--probe", "-o", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["nodes"], &report["probed"]), (&json!(1), &json!(1)), "{report:#}");
    step("octavo doctor has no finding");

    // A power failure: containers come back with their GPU, from the node's own disk.
    let mut kept = shell_pod("kept", NODE, "true", &["kept"]);
    kept["spec"]["restartPolicy"] = json!("Always");
    testbed.create::<ResourceClaim>(claim("kept", &json!([]))).await;
    testbed.create::<Pod>(kept).await;
    testbed.wait_until_running("kept").await;
    testbed.lab.kill_real_node(NODE).await;
    let resumed = UpOptions::control_plane_only(testbed.lab.state_dir(), OCTAVO);
    let options =
        UpOptions { nodes: None, ready_timeout: std::time::Duration::from_mins(10), ..resumed };
    Box::pin(Lab::up(options)).await.unwrap();
    eventually("the pod runs in a new container", || async {
        (restarts(&testbed, "kept").await > 0).then_some(())
    })
    .await;
    testbed.wait_until_running("kept").await;
    step("pods and claims survive a power failure");
    for name in ["one", "kept"] {
        testbed.delete_pod(name).await;
        testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    for name in eight_shares_are_enforced(&testbed).await {
        remove(&testbed, &name).await;
    }
    step("eight shares of one GPU are enforced");
    a_bypass_and_a_spoiled_table_are_stopped(&testbed).await;
    step("a program that bypasses its limit is killed, its neighbour is not");
    testbed.octavo_ok(&["lab", "down"]);
    assert!(!testbed.lab.state_dir().exists());
}

/// Cgroup version 2 alone, systemd as its manager, and the profile of `AppArmor` on tenants, not on the agent.
async fn the_machine_is_what_it_claims(testbed: &Testbed) {
    let log = log_of(testbed, shell_pod("machine", NODE, MACHINE_SCRIPT, &[])).await;
    step(log.lines().next().unwrap_or_default());
    assert!(log.contains("cgroup=0 1\n"), "{log}");
    assert!(log.contains("profile=cri-containerd.apparmor.d (enforce)\n"), "{log}");
    assert!(log.contains("apparmor=Y\n"), "{log}");

    let mut host = shell_pod("host", NODE, CGROUPS_SCRIPT, &[]);
    host["spec"]["hostPID"] = true.into();
    host["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let log = log_of(testbed, host).await;
    assert!(log.contains("init=systemd\n"), "{log}");
    let is_scope = |line: &&str| {
        line.starts_with("0::/") && line.contains("kubepods-") && line.contains("/cri-containerd-")
    };
    assert!(log.lines().filter(is_scope).count() >= 3, "agent, machine and host: {log}");
    // Debian 13 has a profile `runc` that confines nothing, and privileged containers keep it.
    let of_agent = log.lines().find_map(|line| line.strip_prefix("agent="));
    assert!(matches!(of_agent, Some("unconfined" | "runc (unconfined)")), "{log}");
    for name in ["machine", "host"] {
        testbed.delete_pod(name).await;
    }
    step("cgroup version 2 alone, managed by systemd; AppArmor confines tenants, not the agent");
}

/// Says what was found, with the time since the start.
fn step(what: &str) {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    let seconds = START.get_or_init(Instant::now).elapsed().as_secs();
    println!("{seconds:>4} s  {what}");
}
