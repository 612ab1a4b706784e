//! Failing and recovering hardware: slices and health change only for the sick GPU.

use kube::Api;
use kube::api::PostParams;
use octavo_api::HealthPolicy;
use serde_json::json;

use crate::testbed::{Testbed, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sick_gpu_is_tainted_alone_and_comes_back() {
    let testbed = Testbed::up("l4=1").await;
    testbed.octavo_ok(&["lab", "gpu", "l4-0", "1", "fail", "--xid", "79"]);
    let taints = eventually("gpu-1 is tainted", || async {
        let taints = testbed.device("l4-0", "gpu-1").await?.taints.unwrap_or_default();
        (!taints.is_empty()).then_some(taints)
    })
    .await;
    assert_eq!(taints[0].key, "gpu.nvidia.com/xid");
    assert_eq!(taints[0].value.as_deref(), Some("79"));
    assert_eq!(taints[0].effect, "NoSchedule");
    for well in ["gpu-0", "gpu-2", "gpu-3"] {
        let device = testbed.device("l4-0", well).await.unwrap();
        assert!(device.taints.unwrap_or_default().is_empty(), "{well} is tainted, too");
    }
    testbed.octavo_ok(&["lab", "gpu", "l4-0", "1", "heal"]);
    eventually("gpu-1 takes pods again, on probation", || async {
        let taints = testbed.device("l4-0", "gpu-1").await?.taints.unwrap_or_default();
        let [taint] = &taints[..] else { return None };
        let found = (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str());
        (found == ("octavo.dev/health", Some("Probation"), "None")).then_some(())
    })
    .await;
}

/// Time mends nothing, and a new agent forgets nothing: a GPU returns after a remedy and a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_outlives_the_agent_and_ends_after_a_reset() {
    let testbed = Testbed::up("dgx-h100=1").await;
    let taint = |gpu: &'static str| {
        let testbed = &testbed;
        async move {
            let taints = testbed.device("dgx-h100-0", gpu).await?.taints.unwrap_or_default();
            let taint = taints.into_iter().next()?;
            Some((taint.key, taint.value.unwrap_or_default(), taint.effect))
        }
    };
    let wait = async |gpu: &'static str, key: &str, effect: &str| {
        eventually(&format!("{gpu} has {key}, {effect}"), || async {
            let found = taint(gpu).await?;
            (found.0 == key && found.2 == effect).then_some(())
        })
        .await;
    };
    let set = |gpu: &str, arguments: &[&str]| {
        let command = [&["lab", "gpu", "dgx-h100-0", gpu, "set"], arguments].concat();
        testbed.octavo_ok(&command);
    };
    eventually("the node publishes", || testbed.device("dgx-h100-0", "gpu-0")).await;
    // A link of NVLink goes down: new work stays away from this GPU alone.
    set("2", &["--inactive-links", "3"]);
    wait("gpu-2", "octavo.dev/health", "NoSchedule").await;
    assert_eq!(taint("gpu-2").await.unwrap().1, "NVLinkDown");
    assert_eq!(taint("gpu-3").await, None);
    // A pending row remap leaves the GPU in service.
    set("4", &["--remap-pending", "true"]);
    wait("gpu-4", "octavo.dev/health", "None").await;
    assert_eq!(taint("gpu-4").await.unwrap().1, "RowRemapPending");
    // So do fatal errors of the PCIe link, which the kernel alone counts.
    set("6", &["--pcie-fatal-errors", "2"]);
    wait("gpu-6", "octavo.dev/health", "NoSchedule").await;
    assert_eq!(taint("gpu-6").await.unwrap().1, "PCIeErrors");
    testbed.lab.kill(octavo_lab::Component::Agents).await;
    testbed.lab.start(octavo_lab::Component::Agents).await.unwrap();
    wait("gpu-2", "octavo.dev/health", "NoSchedule").await;
    set("2", &["--inactive-links", "none"]);
    eventually("gpu-2 is on probation", || async {
        (taint("gpu-2").await?.1 == "Probation").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_driver_is_closed_and_its_devices_take_no_pods() {
    let testbed = Testbed::up("l4=1").await;
    let agents = testbed.lab.process(octavo_lab::Component::Agents).expect("the agents run");
    // The simulated driver's stand-in for `/dev/nvidiactl`.
    let has_driver = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", agents.pid)).unwrap();
        let files = descriptors.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok());
        files.into_iter().any(|file| file.ends_with("machine.yaml"))
    };
    assert!(has_driver());
    let taints = |wanted: Option<&'static str>| {
        let testbed = &testbed;
        eventually("all GPUs have the taint, or none", move || async move {
            for gpu in ["gpu-0", "gpu-1", "gpu-2", "gpu-3"] {
                let taints = testbed.device("l4-0", gpu).await?.taints.unwrap_or_default();
                let keys: Vec<_> = taints.iter().map(|taint| taint.key.as_str()).collect();
                let values: Vec<_> = taints.iter().filter_map(|t| t.value.as_deref()).collect();
                let expected: Vec<_> = wanted.into_iter().collect();
                let is_key = |key: &&str| *key == "octavo.dev/driver-unavailable";
                if values != expected || !keys.iter().all(is_key) {
                    return None;
                }
            }
            Some(())
        })
    };
    let label = "octavo.dev/driver-released";
    let refused = testbed.octavo(&["lab", "node", "l4-0", "unload-driver"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains(&format!("octavo ({})", agents.pid)), "{text}");
    let text = testbed.octavo_ok(&["driver", "release", "l4-0"]);
    assert_eq!(text, "released: l4-0\n");
    taints(Some("released")).await;
    eventually("the driver is closed", || async { (!has_driver()).then_some(()) }).await;
    testbed.octavo_ok(&["lab", "kubectl", "label", "node", "l4-0", &format!("{label}-")]);
    taints(None).await;
    assert!(has_driver());

    // A pod with a GPU holds the driver, too.
    testbed.pod_with_claim("holder", &json!([])).await;
    testbed.wait_until_running("holder").await;
    let text = testbed.octavo_ok(&["driver", "release", "l4-0"]);
    assert_eq!(text, "released: l4-0\npods that still hold it: default/holder\n");
    assert_eq!(testbed.octavo_ok(&["driver", "resume", "l4-0"]), "in use again: l4-0\n");
    taints(None).await;
    let unknown = testbed.octavo(&["driver", "release", "l4-9"]);
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(text.contains("there is no node \"l4-9\""), "{text}");
}

/// A driver is upgraded while pods come and go: NVIDIA's operator pauses the agent, restarts the driver's container, and
/// resumes. The module `nvidia-uvm` has another number then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_is_loaded_again_under_load_loses_no_claim() {
    const NODE: &str = "dgx-h100-0";
    const PAUSE: &str = "nvidia.com/gpu.deploy.dra-driver-kubelet-plugin";
    let testbed = Testbed::up("dgx-h100=1").await;
    let start = async |names: [&str; 2]| {
        for name in names {
            testbed.pod_with_claim(name, &json!([])).await;
        }
    };
    let with_major = |major: &str| {
        let specs = testbed.node_files(NODE).into_iter();
        let specs = specs.filter(|path| path.extension() == Some("yaml".as_ref()));
        let has = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.contains(&format!("\"major\": {major},"))
        };
        specs.filter(has).count()
    };
    start(["before-0", "before-1"]).await;
    for name in ["before-0", "before-1"] {
        testbed.wait_until_running(name).await;
    }
    assert_eq!((with_major("508"), with_major("501")), (2, 0));
    // These are scheduled while the driver goes.
    start(["during-0", "during-1"]).await;
    let label = |value: &str| {
        let value = format!("{PAUSE}={value}");
        testbed.octavo_ok(&["lab", "kubectl", "label", "--overwrite", "node", NODE, &value]);
    };
    label("paused-for-driver-upgrade");
    eventually("nothing holds the driver", || async {
        let unloaded = testbed.octavo(&["lab", "node", NODE, "unload-driver"]);
        unloaded.status.success().then_some(())
    })
    .await;
    // Whether the scheduler knows the taints yet or not: these wait on the node, or before it.
    start(["after-0", "after-1"]).await;
    eventually("the devices are tainted", || async {
        let taints = testbed.device(NODE, "gpu-0").await?.taints?;
        let is_released = |value: &str| value == "released";
        taints.iter().any(|taint| taint.value.as_deref().is_some_and(is_released)).then_some(())
    })
    .await;
    testbed.octavo_ok(&["lab", "node", NODE, "load-driver", "--uvm-major", "501"]);
    label("true");
    let all = ["before-0", "before-1", "during-0", "during-1", "after-0", "after-1"];
    for name in all {
        testbed.wait_until_running(name).await;
    }
    eventually("every container that starts now gets the new number", || async {
        ((with_major("501"), with_major("508")) == (6, 0)).then_some(())
    })
    .await;
    for name in all {
        testbed.delete_pod(name).await;
    }
    eventually("no file is left", || async { testbed.node_files(NODE).is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_status_shows_a_sick_gpu() {
    let testbed = Testbed::up("gh200=1").await;
    // The pod keeps the GPU, so nothing but the driver's word can be its test.
    let policies: Api<HealthPolicy> = Api::all(testbed.client.clone());
    let spec = json!({"nodeSelector": {"kubernetes.io/hostname": "gh200-0"}, "test": "Driver"});
    let policy = HealthPolicy::new("driver", serde_json::from_value(spec).unwrap());
    policies.create(&PostParams::default(), &policy).await.unwrap();
    testbed.pod_with_claim("patient", &json!([])).await;
    testbed.wait_until_running("patient").await;
    let health = |wanted: &'static str| {
        let testbed = &testbed;
        eventually(wanted, move || async move {
            let pod = serde_json::to_value(testbed.pods().get("patient").await.ok()?).unwrap();
            let resources =
                &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"];
            (resources[0]["health"] == wanted).then_some(())
        })
    };
    health("Healthy").await;
    testbed.octavo_ok(&["lab", "gpu", "gh200-0", "0", "fail", "--xid", "48"]);
    health("Unhealthy").await;
    testbed.octavo_ok(&["lab", "gpu", "gh200-0", "0", "heal"]);
    health("Healthy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reboot_discards_prepared_state() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.pod_with_claim("before", &json!([])).await;
    testbed.wait_until_running("before").await;
    testbed.lab.stop(octavo_lab::Component::Kubelets).await;
    testbed.lab.stop(octavo_lab::Component::Agents).await;
    testbed.octavo_ok(&["lab", "node", "gh200-0", "reboot"]);
    testbed.lab.start(octavo_lab::Component::Agents).await.unwrap();
    testbed.lab.start(octavo_lab::Component::Kubelets).await.unwrap();
    // The pod is still bound to the node, so its claim is prepared again for this boot.
    let boot = testbed.node("gh200-0").join("proc/sys/kernel/random/boot_id");
    let boot = std::fs::read_to_string(boot).unwrap();
    eventually("the claim is prepared again", || async {
        let files = testbed.node_files("gh200-0");
        let of_this_boot = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(boot.trim()))
        };
        (files.len() == 2 && files.iter().any(of_this_boot)).then_some(())
    })
    .await;
    testbed.delete_pod("before").await;
    eventually("no file is left", || async {
        testbed.node_files("gh200-0").is_empty().then_some(())
    })
    .await;
}

/// A running IMEX service, ended when dropped.
struct ImexService(std::process::Child);

impl Drop for ImexService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_imex_services_of_two_trays_connect_and_fail_as_asked() {
    let testbed = Testbed::up("gb200-tray=2").await;
    let folder = tempfile::tempdir().unwrap();
    let nodes = folder.path().join("nodes.cfg");
    std::fs::write(&nodes, "127.0.0.51\n127.0.0.52\n").unwrap();
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, command_port) = (free(), free());
    let mut services = Vec::new();
    for (index, address) in ["127.0.0.51", "127.0.0.52"].into_iter().enumerate() {
        let config = folder.path().join(format!("imexd-{index}.cfg"));
        let text = format!(
            "BIND_INTERFACE_IP={address}\nSERVER_PORT={port}\nIMEX_NODE_CONFIG_FILE={}\n\
             IMEX_CMD_ENABLED=1\nIMEX_CMD_BIND_INTERFACE_IP={address}\nIMEX_CMD_PORT={command_port}\n",
            nodes.display()
        );
        std::fs::write(&config, text).unwrap();
        let programs = testbed.node(&format!("gb200-tray-{index}")).join("driver/usr/bin");
        let service = std::process::Command::new(programs.join("nvidia-imex"))
            .arg("-c")
            .arg(&config)
            .stderr(std::process::Stdio::null())
            .spawn();
        services.push(ImexService(service.unwrap()));
    }
    let domain = || {
        let programs = testbed.node("gb200-tray-0").join("driver/usr/bin");
        let output = std::process::Command::new(programs.join("nvidia-imex-ctl"))
            .args(["-N", "-j", "-c"])
            .arg(folder.path().join("imexd-0.cfg"))
            .output()
            .unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    eventually("the domain is up", async || (domain()["status"] == "UP").then_some(())).await;
    testbed.octavo_ok(&["lab", "node", "gb200-tray-0", "imex", "--cut-peer", "1"]);
    eventually("both have lost each other", async || {
        let nodes = domain()["nodes"].clone();
        let link = |from: &str, to: &str| nodes[from]["connections"][to]["status"].clone();
        (link("0", "1") == "RECOVERING" && link("1", "0") == "RECOVERING").then_some(())
    })
    .await;
    testbed.octavo_ok(&["lab", "node", "gb200-tray-0", "imex"]);
    eventually("the domain is up again", async || (domain()["status"] == "UP").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_fabric_has_no_imex_service() {
    let testbed = Testbed::up("l4=1").await;
    let refused = testbed.octavo(&["lab", "node", "l4-0", "imex", "--stuck-in", "INIT_GPU"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("no fabric between nodes"), "{text}");
}
