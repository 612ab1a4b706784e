//! Real nodes: kubelet, containerd and runc start a process, which reports what it sees.

mod leftovers;

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, ListParams};
use octavo_lab::{Lab, RealProgram, TOOLS_IMAGE, UpOptions, real_node_obstacle};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use leftovers::{Footprint, Traces};

use crate::mig::{mig_claim, opt_in};
use crate::shares::share_claim;
use crate::testbed::{OCTAVO, Testbed, claim, eventually, files};

/// Script that prints a container's view in named sections.
pub(crate) const INSPECT_SCRIPT: &str = "\
    echo '== devices'; ls -l /dev/nvidia* /dev/dri/card*; \
    echo '== opened'; for node in /dev/nvidiactl /dev/nvidia[0-9]*; do cat $node 2>&1; done; \
    mknod /tmp/other c 195 77 && cat /tmp/other 2>&1; \
    echo '== env'; env; \
    echo '== mounts'; cat /proc/self/mountinfo; \
    echo '== cache'; ls /etc/ld.so.cache; \
    echo '== maps'; LD_PRELOAD=libnvidia-ml.so.1 /dynamic/cat /proc/self/maps";

/// The last line of a test pod's output.
const END_MARKER: &str = "== end";

/// Locks the machine for a lab with real nodes. Prints why the test is skipped if that is
/// impossible.
pub(crate) async fn lock_real_nodes() -> Option<MutexGuard<'static, ()>> {
    static REAL_NODES: Mutex<()> = Mutex::const_new(());
    if let Some(obstacle) = real_node_obstacle() {
        // Written directly to standard error, because the test runner hides the output of passing
        // tests.
        let _ = writeln!(std::io::stderr(), "skipped, no real node here: {obstacle}");
        return None;
    }
    Some(REAL_NODES.lock().await)
}

/// A pod on a real node that runs `script` in a shell with the named claims, then sleeps. It does
/// not end by itself, because the claims of ended pods are unprepared.
pub(crate) fn shell_pod(name: &str, node: &str, script: &str, claims: &[&str]) -> Value {
    let claims_of_pod: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    let claims: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "restartPolicy": "Never",
            // With 0 the pod is gone before its container, and the next claim of its GPU has to
            // wait.
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": claims_of_pod,
            "containers": [{
                "name": "main",
                "image": TOOLS_IMAGE,
                "command": ["sh", "-c", format!("{script}; echo '{END_MARKER}'; sleep 10000")],
                "resources": {"claims": claims},
            }],
        },
    })
}

/// Runs a pod of [`shell_pod`] and returns its script's output. The pod stays.
pub(crate) async fn log_of(testbed: &Testbed, pod: Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    testbed.create::<Pod>(pod).await;
    testbed.wait_until_running(&name).await;
    eventually(&format!("pod {name} has told all"), || async {
        let output = testbed.octavo(&["lab", "kubectl", "logs", &name]);
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        log.lines().any(|line| line == END_MARKER).then_some(log)
    })
    .await
}

/// The lines of one section of a container's output.
fn part<'a>(log: &'a str, name: &str) -> Vec<&'a str> {
    let from = format!("== {name}");
    let lines = log.lines().skip_while(|line| *line != from).skip(1);
    lines.take_while(|line| !line.starts_with("== ")).collect()
}

/// Pods wait for `nvidia-uvm`, and get its device node by the number that the module has then.
pub(crate) async fn a_module_may_come_late_and_with_another_number(testbed: &Testbed, node: &str) {
    let path = testbed.node(node).join("proc/devices");
    let text = fs::read_to_string(&path).unwrap();
    let line = "508 nvidia-uvm\n";
    assert!(text.contains(line), "{text}");
    fs::write(&path, text.replace(line, "")).unwrap();
    eventually("the node's devices say which module is missing", || async {
        let taints = testbed.device(node, "gpu-0").await?.taints?;
        let is_it = |value: &str| value == "missing-nvidia-uvm";
        taints.iter().any(|taint| taint.value.as_deref().is_some_and(is_it)).then_some(())
    })
    .await;
    testbed.create::<ResourceClaim>(claim("late", &json!([]))).await;
    testbed.create::<Pod>(shell_pod("late", node, "ls -l /dev/nvidia-uvm", &["late"])).await;
    testbed.wait_until_unschedulable("late").await;
    fs::write(&path, text.replace(line, "501 nvidia-uvm\n")).unwrap();
    testbed.wait_until_running("late").await;
    let log = testbed.octavo_ok(&["lab", "kubectl", "logs", "late"]);
    assert!(log.contains("501,   0"), "{log}");
    testbed.delete_pod("late").await;
    testbed.claims().delete("late", &DeleteParams::default()).await.unwrap();
    fs::write(&path, text).unwrap();
}

/// Images come from the lab's registry, as their pull policy says.
async fn images_are_pulled_as_their_policy_says(testbed: &Testbed, node: &str) {
    let with = |name: &str, image: &str, policy: &str| {
        let mut pod = shell_pod(name, node, "true", &[]);
        let container = &mut pod["spec"]["containers"][0];
        container["image"] = json!(image);
        container["imagePullPolicy"] = json!(policy);
        pod
    };
    let reason = async |name: &str, wanted: &[&str]| {
        eventually(&format!("{name} waits with one of {wanted:?}"), || async {
            let status = testbed.pods().get(name).await.ok()?.status?;
            let state = status.container_statuses?.first()?.state.clone()?;
            wanted.contains(&state.waiting?.reason?.as_str()).then_some(())
        })
        .await;
        testbed.delete_pod(name).await;
    };
    let unknown = "octavo.dev/lab/tools:2";
    testbed.create::<Pod>(with("never", unknown, "Never")).await;
    testbed.create::<Pod>(with("unknown", unknown, "IfNotPresent")).await;
    log_of(testbed, with("always", TOOLS_IMAGE, "Always")).await;
    testbed.delete_pod("always").await;
    reason("never", &["ErrImageNeverPull"]).await;
    reason("unknown", &["ErrImagePull", "ImagePullBackOff"]).await;
}

/// A container with a GPU starts on each node, until the program of the CDI hooks on one of them cannot be run.
fn doctor_finds_what_keeps_containers_from_gpus(testbed: &Testbed) {
    let report = |args: &[&str], code| -> Value {
        let output = testbed.octavo(&[&["doctor", "-o", "json"], args].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{text}{errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let well = report(&["--probe"], 0);
    assert_eq!((&well["nodes"], &well["probed"]), (&json!(2), &json!(2)), "{well:#}");

    let root = testbed.lab.real_root("real-1").unwrap();
    let hook = root.join("var/lib/octavo/bin/octavo-cdi-hook");
    fs::set_permissions(&hook, Permissions::from_mode(0o644)).unwrap();
    let sick = report(&["--probe", "--probe-timeout", "15s"], 1);
    assert_eq!(sick["probed"], 1, "{sick:#}");
    let finding = &sick["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["subject"]),
        (&json!("error"), &json!("node real-1"))
    );
    assert!(finding["problem"].as_str().unwrap().contains("octavo-cdi-hook"), "{finding:#}");
    assert!(finding["remedy"].as_str().unwrap().contains("hookDir"), "{finding:#}");
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
}

/// Files of claims on a real node: CDI specs and checkpoints.
fn claim_files(lab: &Lab, node: &str) -> Vec<PathBuf> {
    let Some(root) = lab.real_root(node) else { return Vec::new() };
    let checkpoints = files(&root.join("var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint"));
    let is_claim = |path: &PathBuf| path.extension() == Some("json".as_ref());
    files(&root.join("run/cdi"))
        .into_iter()
        .chain(checkpoints.into_iter().filter(is_claim))
        .collect()
}

async fn wait_until_no_claim_file_is_left(testbed: &Testbed, node: &str) {
    eventually(&format!("no file of a claim is left on {node}"), || async {
        claim_files(&testbed.lab, node).is_empty().then_some(())
    })
    .await;
}

async fn wait_for_restart(
    testbed: &Testbed,
    node: &str,
    program: RealProgram,
    before: Option<octavo_lab::Process>,
) {
    eventually(&format!("{} of {node} runs again", program.name()), || async {
        let now = testbed.lab.real_process(node, program)?;
        (Some(now) != before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_get_their_claims_and_down_leaves_nothing() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let before = Footprint::take();
    let testbed = Testbed::up_real("1:dgx-h100,1:t4").await;
    let traces = Traces::of(&testbed.lab);

    a_module_may_come_late_and_with_another_number(&testbed, "real-1").await;
    for (node, name) in [("real-0", "one"), ("real-1", "two")] {
        testbed.create::<ResourceClaim>(claim(name, &json!([]))).await;
        let log = log_of(&testbed, shell_pod(name, node, INSPECT_SCRIPT, &[name])).await;
        let gpu = allocated_gpu(&testbed, name).await;
        assert_sees_its_gpu(&log, gpu);
    }
    images_are_pulled_as_their_policy_says(&testbed, "real-0").await;
    // Without a claim no GPU is visible.
    let log = log_of(&testbed, shell_pod("none", "real-0", "ls /dev; env", &[])).await;
    assert!(!log.to_lowercase().contains("nvidia"), "{log}");

    doctor_finds_what_keeps_containers_from_gpus(&testbed);

    parts_of_gpus_have_their_files(&testbed).await;

    eventually("the parts of GPUs are given back", || async {
        (claim_files(&testbed.lab, "real-0").len() == 2).then_some(())
    })
    .await;
    for (node, name) in [("real-0", "one"), ("real-1", "two")] {
        testbed.delete_pod(name).await;
        testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
        wait_until_no_claim_file_is_left(&testbed, node).await;
    }

    // `down` with a running pod.
    testbed.create::<ResourceClaim>(claim("held", &json!([]))).await;
    testbed.create::<Pod>(shell_pod("held", "real-0", "true", &["held"])).await;
    testbed.wait_until_running("held").await;
    let output = testbed.octavo_ok(&[
        "lab",
        "kubectl",
        "exec",
        "held",
        "--",
        "sh",
        "-c",
        "echo $0 $((6 * 7))",
    ]);
    assert_eq!(output.trim(), "sh 42");
    assert!(testbed.octavo_ok(&["lab", "status"]).contains("real-0/kubelet"));
    testbed.octavo_ok(&["lab", "down"]);
    traces.wait_until_gone().await;
    assert_eq!(Footprint::take(), before);
}

/// The agent answers a port-forward. Other pods get health only.
async fn the_shares_of_an_agent_are_read_by_port_forward(testbed: &Testbed, share: &str) {
    let text = testbed.octavo_ok(&["top", "--shares", "-o", "json"]);
    let shares: Value = serde_json::from_str(&text).unwrap();
    assert!(shares.to_string().contains(&format!("\"{share}\"")), "{shares:#}");
    assert_eq!(shares["unread"], Value::Null, "{shares:#}");
    assert!(shares["shares"][0]["figures"]["limitBytes"].is_u64(), "{shares:#}");
    let agents: Api<Pod> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let labels = ListParams::default().labels("app.kubernetes.io/component=agent");
    let agents = agents.list(&labels).await.unwrap().items;
    let on_node = |pod: &&Pod| {
        pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("real-0"))
    };
    let agent = agents.iter().find(on_node).unwrap().status.clone().unwrap().pod_ip.unwrap();
    let ask =
        format!("for path in healthz metrics; do wget -qO- http://{agent}:9178/$path 2>&1; done");
    let log = log_of(testbed, shell_pod("reader", "real-0", &ask, &[])).await;
    assert!(log.contains("ok\n") && log.contains("403"), "{log}");
    assert!(!log.contains("octavo_"), "{log}");
    testbed.delete_pod("reader").await;
}

/// A share has its limits beside it, a MIG device its capabilities.
pub(crate) async fn parts_of_gpus_have_their_files(testbed: &Testbed) {
    opt_in(testbed, "real-0", "7").await;
    testbed
        .create::<ResourceClaim>(share_claim("part", &json!({"memory": "20Gi", "compute": "25"})))
        .await;
    let look = "cat /run/octavo/shares/*/limits.json; echo; echo '== devices'; ls /dev/nvidia*";
    let log = log_of(testbed, shell_pod("part", "real-0", look, &["part"])).await;
    let (limits, devices) = log.split_once("== devices").unwrap();
    let limits: Value = serde_json::from_str(limits).unwrap();
    // Its portion of what driver and firmware reserve is left out.
    assert_eq!(limits["memoryBytes"], 20_341_u64 << 20, "{limits}");
    assert_eq!(limits["computeMilliPercent"], 25_000, "{limits}");
    assert_eq!(devices.matches("/dev/nvidia").count() - devices.matches("/dev/nvidia-").count(), 2);
    the_shares_of_an_agent_are_read_by_port_forward(testbed, "part").await;
    testbed.create::<ResourceClaim>(mig_claim("cut", &["1g.10gb"])).await;
    let log = log_of(testbed, shell_pod("cut", "real-0", "ls /dev/nvidia-caps", &["cut"])).await;
    assert_eq!(log.matches("nvidia-cap").count(), 2, "{log}");
    for name in ["part", "cut"] {
        testbed.delete_pod(name).await;
        testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_programs_and_nodes_come_back_with_their_pods() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:t4").await;
    let traces = Traces::of(&testbed.lab);
    let node = "real-0";
    testbed.create::<ResourceClaim>(claim("kept", &json!([]))).await;
    let mut kept = shell_pod("kept", node, "true", &["kept"]);
    kept["spec"]["restartPolicy"] = json!("Always");
    testbed.create::<Pod>(kept).await;
    testbed.wait_until_running("kept").await;
    for program in RealProgram::ALL {
        let old = testbed.lab.real_process(node, program);
        assert!(old.is_some(), "{program:?} runs");
        testbed.lab.kill_real(node, program).await;
        wait_for_restart(&testbed, node, program, old).await;
        a_new_pod_gets_its_gpu(&testbed, node, program.name()).await;
    }
    let old = agent_processes();
    assert_eq!(old.len(), 1, "one agent on one node");
    rustix::process::kill_process(old[0], rustix::process::Signal::KILL).unwrap();
    eventually("another agent runs", || async {
        let now = agent_processes();
        (!now.is_empty() && !now.contains(&old[0])).then_some(())
    })
    .await;
    a_new_pod_gets_its_gpu(&testbed, node, "agent").await;
    assert_eq!(restarts(&testbed, "kept").await, 0);
    eventually("the files of one claim are left", || async {
        (claim_files(&testbed.lab, node).len() == 2).then_some(())
    })
    .await;

    // Power failure: `up` restarts the node, and its pods come back.
    testbed.lab.kill_real_node(node).await;
    assert!(testbed.octavo_ok(&["lab", "status"]).contains("real-0/kubelet ended"));
    let resumed = UpOptions::control_plane_only(testbed.lab.state_dir(), OCTAVO);
    Box::pin(Lab::up(UpOptions { nodes: None, ..resumed })).await.unwrap();
    eventually("the pod runs in a new container", || async {
        (restarts(&testbed, "kept").await > 0).then_some(())
    })
    .await;
    testbed.wait_until_running("kept").await;
    let log = log_of(&testbed, shell_pod("last", node, "echo well", &[])).await;
    assert_eq!(log.lines().next(), Some("well"));
    testbed.octavo_ok(&["lab", "down"]);
    traces.wait_until_gone().await;
}

/// After a program was killed: its containers keep running, and new ones start.
async fn a_new_pod_gets_its_gpu(testbed: &Testbed, node: &str, killed: &str) {
    let name = format!("after-{killed}");
    testbed.create::<ResourceClaim>(claim(&name, &json!([]))).await;
    let log = log_of(testbed, shell_pod(&name, node, INSPECT_SCRIPT, &[&name])).await;
    assert_sees_its_gpu(&log, allocated_gpu(testbed, &name).await);
    testbed.delete_pod(&name).await;
    testbed.claims().delete(&name, &DeleteParams::default()).await.unwrap();
}

/// The agents that run as the chart's pods. Only one test at a time has real nodes.
fn agent_processes() -> Vec<rustix::process::Pid> {
    let is_agent = |pid: i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"octavo-agent\0--config=/etc/octavo/")
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_agent(*pid)).filter_map(rustix::process::Pid::from_raw).collect()
}

/// Checks the view of a container with one GPU.
pub(crate) fn assert_sees_its_gpu(log: &str, gpu: u32) {
    let devices = part(log, "devices");
    for (node, numbers) in [
        ("/dev/nvidiactl", "195, 255"),
        ("/dev/nvidia-uvm", "508,   0"),
        (&format!("/dev/nvidia{gpu}"), &format!("195, {gpu:>3}")),
    ] {
        let is_it = |line: &&&str| line.ends_with(&format!(" {node}"));
        let line = devices.iter().find(is_it).unwrap_or_else(|| panic!("{node}: {log}"));
        assert!(line.starts_with("crw-rw-rw-") && line.contains(numbers), "{node}: {log}");
    }
    // No driver stands behind the numbers. The device cgroup refuses those of other GPUs before that.
    let opened = part(log, "opened");
    let count = |words: &str| opened.iter().filter(|line| line.ends_with(words)).count();
    assert_eq!(
        (count("No such device or address"), count("Operation not permitted")),
        (2, 1),
        "{log}"
    );
    let gpus = devices.iter().filter(|line| {
        line.rsplit_once("/dev/nvidia").is_some_and(|(_, minor)| minor.parse::<u32>().is_ok())
    });
    assert_eq!(gpus.count(), 1, "no other GPU: {log}");
    assert!(part(log, "env").contains(&"NVIDIA_VISIBLE_DEVICES=void"), "{log}");
    let mounts = part(log, "mounts");
    for library in ["libnvidia-ml.so.", "libcuda.so."] {
        let mounted = mounts.iter().any(|line| {
            let mut words = line.split(' ').skip(4);
            let (path, options) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            path.contains(library) && options.split(',').any(|option| option == "ro")
        });
        assert!(mounted, "{library}: {log}");
    }
    // The hook has written the cache, through which the dynamic linker found the library.
    assert_eq!(part(log, "cache"), ["/etc/ld.so.cache"], "{log}");
    assert!(part(log, "maps").iter().any(|line| line.contains("libnvidia-ml.so.")), "{log}");
}

/// Minor number of the GPU allocated to a claim.
pub(crate) async fn allocated_gpu(testbed: &Testbed, name: &str) -> u32 {
    let claim = testbed.claims().get(name).await.unwrap();
    let results = claim.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap();
    results[0].device.strip_prefix("gpu-").unwrap().parse().unwrap()
}

pub(crate) async fn restarts(testbed: &Testbed, name: &str) -> i32 {
    let status = testbed.pods().get(name).await.ok().and_then(|pod| pod.status);
    let containers = status.and_then(|status| status.container_statuses).unwrap_or_default();
    containers.iter().map(|container| container.restart_count).sum()
}
