//! A `ComputeDomain` on real nodes: the daemons run in containers, and talk over the pods' network.

use octavo_api::imex::ImexSettings;
use octavo_lab::UpOptions;

use crate::compute_domain_pods::{Domains, all_ready};
use crate::real_node::lock_real_nodes;
use crate::testbed::{OCTAVO, Testbed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_on_real_nodes_has_daemons_in_containers() {
    run_job(ImexSettings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_in_containers_encrypt_with_the_secret_that_the_kubelet_mounts() {
    run_job(ImexSettings { encryption: true, ..ImexSettings::default() }).await;
}

async fn run_job(imex: ImexSettings) {
    let Some(_lock) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_with(|state| UpOptions {
        real_nodes: Some("2:gb200-tray".parse().unwrap()),
        controller: Some(true),
        imex: Some(imex),
        ..UpOptions::control_plane_only(state, OCTAVO)
    })
    .await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["real-0", "real-1"];
    domains.create("job").await;
    domains.real_pod("w0", "job", a).await;
    domains.real_pod("w1", "job", b).await;
    for name in ["w0", "w1"] {
        testbed.wait_until_running(name).await;
        let list = ["lab", "kubectl", "exec", name, "--", "ls", "/dev/nvidia-caps-imex-channels"];
        assert_eq!(testbed.octavo_ok(&list).trim(), "channel0");
    }
    domains.wait("job", &all_ready(&[a, b])).await;
    for node in [a, b] {
        let daemon = domains.daemon(node).await;
        let volumes = daemon.spec.into_iter().flat_map(|spec| spec.volumes.unwrap_or_default());
        let secrets = volumes.filter(|volume| volume.secret.is_some());
        assert_eq!(secrets.count(), usize::from(imex.encryption), "{node}");
    }
    testbed.delete_pod("w0").await;
    testbed.delete_pod("w1").await;
    domains.api().delete("job", &kube::api::DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
}
