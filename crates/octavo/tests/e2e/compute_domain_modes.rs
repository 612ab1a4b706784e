//! The modes of IMEX on simulated trays: domains that share a clique, and services that the hosts run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use octavo_api::compute_domain::Readiness;
use octavo_api::imex::{ImexIsolation, ImexMode, ImexSettings};
use octavo_api::names::{CONDITION_SHARED_CLIQUE, LABEL_COMPUTE_DOMAIN, SHARED_IMEX_DOMAIN};
use octavo_lab::UpOptions;

use crate::compute_domain_pods::{Domains, all_ready};
use crate::testbed::{OCTAVO, Testbed, eventually};

const CHANNELS: &str = "/dev/nvidia-caps-imex-channels/";

pub(crate) async fn lab(nodes: &str, imex: ImexSettings) -> Testbed {
    Testbed::up_with(|state| UpOptions {
        nodes: Some(nodes.parse().unwrap()),
        imex: Some(imex),
        ..UpOptions::new(state, OCTAVO)
    })
    .await
}

/// Nodes with the label of a domain.
async fn labelled(client: &Client) -> usize {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.list(&ListParams::default().labels(LABEL_COMPUTE_DOMAIN)).await.unwrap().items.len()
}

impl Domains<'_> {
    /// The channel of a domain in its only clique, once it has one.
    async fn channel(&self, domain: &str) -> u32 {
        let api = self.api();
        eventually(&format!("{domain} has a channel"), || async {
            let status = api.get(domain).await.ok()?.status?;
            match status.channels.as_slice() {
                [channel] => Some(channel.channel),
                _ => None,
            }
        })
        .await
    }

    /// Deletes a domain, and waits until it is gone.
    pub(crate) async fn delete(&self, domain: &str) {
        let api = self.api();
        api.delete(domain, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{domain} is gone"), || async {
            api.get_opt(domain).await.ok()?.is_none().then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_domains_share_the_nodes_of_a_clique() {
    let imex = ImexSettings { isolation: ImexIsolation::Channel, ..ImexSettings::default() };
    let testbed = lab("gb200-tray=3", imex).await;
    let domains = Domains::of(&testbed);
    let trays = ["gb200-tray-0", "gb200-tray-1", "gb200-tray-2"];
    // The daemons are there before any domain.
    let cliques = domains.cliques();
    let daemons = || async {
        let found = cliques.list(&ListParams::default()).await.ok()?.items;
        let [clique] = found.as_slice() else { return None };
        let is_ready = clique.daemons.iter().all(|daemon| daemon.status == Readiness::Ready);
        (clique.daemons.len() == 3 && is_ready).then(|| clique.name_any())
    };
    let clique = eventually("three shared daemons are ready", daemons).await;
    assert!(clique.starts_with(&format!("{SHARED_IMEX_DOMAIN}.")), "{clique}");
    let pids = domains.pids(trays[0]).await;

    let names: Vec<String> = (0..10).map(|number| format!("job-{number}")).collect();
    for name in &names {
        domains.create(name).await;
        for tray in trays {
            domains.pod(&format!("{name}-{tray}"), name, tray).await;
        }
    }
    let mut taken = BTreeSet::new();
    for name in &names {
        for tray in trays {
            let pod = testbed.wait_until_running(&format!("{name}-{tray}")).await;
            let channel = domains.channel(name).await;
            let container = testbed.container(tray, &pod, "main");
            assert_eq!(container.device_nodes(CHANNELS), 1, "{name} on {tray}");
            let own = format!("{CHANNELS}channel{channel}");
            assert_eq!(container.device_nodes(&own), 1, "{name} on {tray}: {own}");
        }
        domains.wait(name, &all_ready(&trays)).await;
        let status = domains.api().get(name).await.unwrap().status.unwrap();
        assert_eq!(status.status, Readiness::Ready);
        let is_shared = status.conditions.iter().any(|it| it.type_ == CONDITION_SHARED_CLIQUE);
        assert!(!is_shared, "it is what the setting is for");
        assert!(taken.insert(status.channels[0].channel), "{name}: {:?}", status.channels);
    }
    assert_eq!(taken, (0..10).collect(), "the lowest numbers are given");
    assert_eq!(labelled(&testbed.client).await, 0);
    let text = testbed.octavo_ok(&["explain", "computedomain", "job-4"]);
    assert!(
        text.contains("is ready: 3 of 3") && text.contains("imex.isolation: channel"),
        "{text}"
    );

    // A channel is free with its domain, and the daemons run on.
    let freed = domains.channel("job-4").await;
    for tray in trays {
        testbed.delete_pod(&format!("job-4-{tray}")).await;
    }
    domains.delete("job-4").await;
    domains.create("late").await;
    domains.pod("late", "late", trays[0]).await;
    testbed.wait_until_running("late").await;
    assert_eq!(domains.channel("late").await, freed);

    testbed.delete_pod("late").await;
    domains.delete("late").await;
    for name in names.iter().filter(|name| *name != "job-4") {
        for tray in trays {
            testbed.delete_pod(&format!("{name}-{tray}")).await;
        }
        domains.delete(name).await;
    }
    assert_eq!(domains.pids(trays[0]).await, pids);
    eventually("the shared daemons are ready", daemons).await;
}

/// A service of a host, which ends with the test.
struct HostService(Child);

impl Drop for HostService {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl HostService {
    /// Starts the service as an administrator configures it: peers by address, commands at a socket.
    fn start(testbed: &Testbed, node: &str, index: usize) -> Self {
        let driver = testbed.node(node).join("driver");
        let folder = driver.join("etc/nvidia-imex");
        std::fs::create_dir_all(&folder).unwrap();
        let nodes: PathBuf = folder.join("nodes_config.cfg");
        std::fs::write(&nodes, "127.77.0.1\n127.77.0.2\n").unwrap();
        let config = folder.join("config.cfg");
        let text = format!(
            "BIND_INTERFACE_IP=127.77.0.{}\nIMEX_NODE_CONFIG_FILE={}\nIMEX_WAIT_FOR_QUORUM=NONE\n\
             IMEX_CMD_ENABLED=1\nIMEX_CMD_BIND_INTERFACE_IP=127.77.0.{}\n\
             IMEX_CMD_UNIX_DOMAIN_PATH={}\n",
            index + 1,
            nodes.display(),
            index + 1,
            folder.join("imex_ctrl.sock").display()
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(driver.join("usr/bin/nvidia-imex"));
        command.arg("-c").arg(config).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_for_the_services_of_their_hosts() {
    let imex = ImexSettings { mode: ImexMode::HostManaged, ..ImexSettings::default() };
    let testbed = lab("gb200-tray=2", imex).await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["gb200-tray-0", "gb200-tray-1"];
    domains.create("job").await;
    let _service = HostService::start(&testbed, a, 0);
    domains.pod("w0", "job", a).await;
    domains.pod("w1", "job", b).await;
    let pod = testbed.wait_until_running("w0").await;
    assert_eq!(testbed.container(a, &pod, "main").device_nodes(CHANNELS), 1);

    // The other node's service does not run: its pod waits, and says for what.
    let text = eventually("the pod that waits is explained", || async {
        // The exit code says that the domain waits.
        let output = testbed.octavo(&["explain", "computedomain", "job"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("nvidia-imex").then_some(text)
    })
    .await;
    assert!(text.contains("w1 (Pending)") && text.contains("imex.mode: hostManaged"), "{text}");
    let _other = HostService::start(&testbed, b, 1);
    testbed.wait_until_running("w1").await;
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    assert!(nodes.values().all(|node| node.index.is_none() && !node.clique_id.is_empty()));

    // There are no daemons, and no labels.
    let sets: Api<DaemonSet> = Api::all(testbed.client.clone());
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(labelled(&testbed.client).await, 0);
    testbed.delete_pod("w0").await;
    testbed.delete_pod("w1").await;
    domains.delete("job").await;
    domains.wait_until_nothing_is_left().await;
}
