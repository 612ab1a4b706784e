//! `imex.encryption` on simulated trays: real controller, agents and daemons, and a simulated `nvidia-imex` that speaks TLS.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use octavo_api::imex::{ImexIsolation, ImexSettings};
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, SHARED_IMEX_DOMAIN};

use crate::compute_domain_modes::lab;
use crate::compute_domain_pods::{Domains, all_ready};
use crate::testbed::eventually;

const SYSTEM: &str = "octavo-system";

/// Names of the Secrets with certificates.
async fn secrets(client: &Client) -> Vec<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let labelled = ListParams::default().labels(LABEL_COMPUTE_DOMAIN);
    let found = api.list(&labelled).await.unwrap().items;
    found.iter().map(ResourceExt::name_any).collect()
}

impl Domains<'_> {
    /// The services of two nodes are connected, and both encrypt.
    async fn are_encrypted(&self, nodes: [&str; 2]) {
        for node in nodes {
            let pod = self.daemon(node).await;
            let folder = self.testbed.node(node).join("kubelet/pods").join(pod.uid().unwrap());
            let config = std::fs::read_to_string(folder.join("imexd/imexd.cfg")).unwrap();
            for line in ["IMEX_ENABLE_AUTH_ENCRYPTION=1\n", "IMEX_AUTH_SOURCE=FILE\n"] {
                assert!(config.contains(line), "{config}");
            }
            self.wait_until_connected(node).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_of_a_domain_encrypt_and_leave_no_secret() {
    let imex = ImexSettings { encryption: true, ..ImexSettings::default() };
    let testbed = lab("gb200-tray=3", imex).await;
    let domains = Domains::of(&testbed);
    let [a, b, c] = ["gb200-tray-0", "gb200-tray-1", "gb200-tray-2"];
    let uid = domains.create("job").await.uid().unwrap();
    domains.pod("w0", "job", a).await;
    domains.pod("w1", "job", b).await;
    for name in ["w0", "w1"] {
        testbed.wait_until_running(name).await;
    }
    domains.wait("job", &all_ready(&[a, b])).await;
    let name = format!("computedomain-daemon-{uid}");
    assert_eq!(secrets(&testbed.client).await, std::slice::from_ref(&name));
    domains.are_encrypted([a, b]).await;

    // Without its Secret the daemons run on, and another waits: it would not be trusted.
    let api: Api<Secret> = Api::namespaced(testbed.client.clone(), SYSTEM);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    domains.pod("w2", "job", c).await;
    let lost = eventually("the lost certificate is reported", || async {
        let status = domains.api().get("job").await.ok()?.status?;
        status.conditions.into_iter().find(|it| it.reason == "CertificateLost")
    });
    assert_eq!(lost.await.status, "True");
    let events: Api<Event> = Api::namespaced(testbed.client.clone(), SYSTEM);
    eventually("the pod of the daemon says that it waits", || async {
        let found = events.list(&ListParams::default()).await.ok()?.items.into_iter();
        let mut waits = found.filter(|it| it.reason.as_deref() == Some("FailedMount"));
        waits.find(|it| it.message.as_ref().is_some_and(|note| note.contains(&name)))
    })
    .await;
    domains.are_encrypted([a, b]).await;

    // Once the pods of the job have ended, the next ones get another certificate.
    for pod in ["w0", "w1", "w2"] {
        testbed.delete_pod(pod).await;
    }
    eventually("another certificate is issued", || async {
        (secrets(&testbed.client).await == std::slice::from_ref(&name)).then_some(())
    })
    .await;
    domains.pod("w3", "job", b).await;
    domains.pod("w4", "job", c).await;
    domains.wait("job", &all_ready(&[b, c])).await;
    domains.are_encrypted([b, c]).await;

    testbed.delete_pod("w3").await;
    testbed.delete_pod("w4").await;
    domains.delete("job").await;
    domains.wait_until_nothing_is_left().await;
    assert_eq!(secrets(&testbed.client).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_that_domains_share_encrypt() {
    let isolation = ImexIsolation::Channel;
    let imex = ImexSettings { isolation, encryption: true, ..ImexSettings::default() };
    let testbed = lab("gb200-tray=2", imex).await;
    let domains = Domains::of(&testbed);
    let trays = ["gb200-tray-0", "gb200-tray-1"];
    for job in ["one", "two"] {
        domains.create(job).await;
        for tray in trays {
            domains.pod(&format!("{job}-{tray}"), job, tray).await;
        }
    }
    for job in ["one", "two"] {
        domains.wait(job, &all_ready(&trays)).await;
        testbed.wait_until_running(&format!("{job}-{}", trays[1])).await;
    }
    let name = format!("computedomain-daemon-{SHARED_IMEX_DOMAIN}");
    assert_eq!(secrets(&testbed.client).await, [name]);
    domains.are_encrypted(trays).await;
}
