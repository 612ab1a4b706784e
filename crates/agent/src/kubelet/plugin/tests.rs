use std::path::Path;
use std::time::Duration;

use octavo_health::reason::Reason;
use octavo_kube_io::admin::Readiness;
use octavo_kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use octavo_kubelet_api::dra::v1beta1::dra_plugin_client::DraPluginClient as BetaClient;
use octavo_kubelet_api::health::v1alpha1::dra_resource_health_client::DraResourceHealthClient;
use octavo_kubelet_api::health::v1alpha1::{HealthStatus, NodeWatchResourcesRequest};
use prometheus_client::registry::Registry;
use tokio::sync::{Barrier, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint as Client};

use super::*;
use crate::config::{NodeConfig, NodeFile};
use crate::kubelet::endpoint::{Endpoint, HealthSource, Services};
use crate::kubelet::registration::KubeletRegistration;
use crate::monitor::Snapshot;
use crate::node::DraDriver;
use crate::testing;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Prepares claims unless their name is "bad". It waits until this many calls run at once.
struct TestPreparer {
    together: Barrier,
    arrived: Semaphore,
}

impl Preparer for TestPreparer {
    async fn prepare(
        &self,
        claim: &ClaimRef,
        _deadline: Instant,
    ) -> Result<Vec<PreparedDevice>, Refusal> {
        self.arrived.add_permits(1);
        self.together.wait().await;
        if claim.name == "bad" {
            return Err(Refusal::NotAllocated { claim: claim.name.clone() });
        }
        Ok(vec![PreparedDevice {
            requests: vec!["gpu".to_owned()],
            pool: "node".to_owned(),
            device: format!("gpu-{}", claim.namespace),
            cdi_ids: vec![format!("vendor/class={}", claim.uid)],
            share_id: Some("share".to_owned()),
        }])
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        match claim.name.as_str() {
            "bad" => Err(Refusal::BadClaimUid { uid: claim.uid.clone() }),
            _ => Ok(()),
        }
    }
}

struct Served {
    config: NodeConfig,
    preparer: Arc<TestPreparer>,
    health: watch::Sender<Snapshot>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

fn serve(together: usize) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let settings = NodeFile {
        node_name: Some("node".to_owned()),
        kubelet_root: Some(folder.path().to_owned()),
        ..NodeFile::default()
    };
    let config = settings.complete().unwrap();
    let (health, snapshots) = watch::channel(Snapshot {
        inventory: Some(Arc::new(testing::inventory(2))),
        ..Snapshot::default()
    });
    let (together, arrived) = (Barrier::new(together), Semaphore::new(0));
    let preparer = Arc::new(TestPreparer { together, arrived });
    let parts = Services {
        preparer: Arc::clone(&preparer),
        health: Some(HealthSource { snapshots, again: watch::channel(()).1 }),
        metrics: Arc::new(Metrics::new(&mut Registry::default())),
        registration: Arc::new(KubeletRegistration::new(
            Arc::new(Readiness::default()).check("kubelet", "not registered"),
        )),
    };
    let endpoint = Endpoint::bind(DraDriver::GPU, &config).unwrap();
    assert!(config.registry_folder().join("gpu.nvidia.com@reg.sock").exists());
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let serving = tokio::spawn(async move { endpoint.serve(parts, stopped).await.unwrap() });
    Served { config, preparer, health, stop, serving, _folder: folder }
}

async fn connect(config: &NodeConfig) -> Channel {
    let path = config.plugin_folder().join("dra.sock");
    assert!(Path::new(&path).exists());
    Client::try_from(format!("unix:{}", path.display())).unwrap().connect().await.unwrap()
}

fn claim(name: &str, uid: &str) -> v1::Claim {
    v1::Claim { namespace: "0".to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

#[tokio::test]
async fn claims_of_a_call_are_worked_on_together_and_fail_alone() {
    let served = serve(3);
    let mut client = DraPluginClient::new(connect(&served.config).await);
    let claims = vec![claim("good", "u-1"), claim("bad", "u-2"), claim("good", "u-3")];
    let request = v1::NodePrepareResourcesRequest { claims: claims.clone() };
    let answer = timeout(TIMEOUT, client.node_prepare_resources(request)).await.unwrap();
    let answers = answer.unwrap().into_inner().claims;
    assert_eq!(answers.len(), 3);
    assert_eq!(answers["u-1"].error, "");
    assert_eq!(answers["u-1"].devices[0].device_name, "gpu-0");
    assert_eq!(answers["u-3"].devices[0].cdi_device_ids, ["vendor/class=u-3"]);
    assert_eq!(answers["u-3"].devices[0].share_id.as_deref(), Some("share"));
    assert!(answers["u-2"].devices.is_empty());
    assert!(answers["u-2"].error.contains("not allocated"), "{}", answers["u-2"].error);

    let request = v1::NodeUnprepareResourcesRequest { claims };
    let answers = client.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers.len(), 3);
    assert_eq!(answers["u-1"].error, "");
    assert!(answers["u-2"].error.contains("u-2"), "{}", answers["u-2"].error);
}

#[tokio::test]
async fn an_older_kubelet_is_served_without_share_identifiers() {
    let served = serve(1);
    let mut client = BetaClient::new(connect(&served.config).await);
    let claim =
        v1beta1::Claim { namespace: "1".to_owned(), name: "good".to_owned(), uid: "u".to_owned() };
    let request = v1beta1::NodePrepareResourcesRequest { claims: vec![claim.clone()] };
    let answers = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers["u"].devices[0].device_name, "gpu-1");
    assert_eq!(answers["u"].devices[0].request_names, ["gpu"]);
    let request = v1beta1::NodeUnprepareResourcesRequest { claims: vec![claim] };
    let answers = client.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers["u"].error, "");
}

#[tokio::test]
async fn health_is_sent_at_once_and_on_change_until_shutdown() {
    let served = serve(1);
    let mut client = DraResourceHealthClient::new(connect(&served.config).await);
    let answer = client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap();
    let mut answers = answer.into_inner();
    let first = timeout(TIMEOUT, answers.message()).await.unwrap().unwrap().unwrap();
    let state = |health: &octavo_kubelet_api::health::v1alpha1::DeviceHealth| {
        let device = health.device.clone().unwrap();
        (device.pool_name, device.device_name, health.health())
    };
    let well = |name: &str| ("node".to_owned(), name.to_owned(), HealthStatus::Healthy);
    assert_eq!(first.devices.iter().map(state).collect::<Vec<_>>(), [well("gpu-0"), well("gpu-1")]);
    // Longer than the kubelet's own timeout: it must not mark an idle node's health as unknown.
    assert!(first.devices[0].health_check_timeout_seconds > 30);

    served.health.send_modify(|snapshot| {
        let state = testing::fenced(Reason::Xid(79), 1_700_000_000);
        snapshot.health.insert(testing::uuid(1), state);
    });
    let second = timeout(TIMEOUT, answers.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(second.devices[0].health(), HealthStatus::Healthy);
    assert_eq!(second.devices[1].health(), HealthStatus::Unhealthy);
    assert_eq!(second.devices[1].last_updated_time, 1_700_000_000);
    assert!(second.devices[1].message.contains("XID 79"), "{}", second.devices[1].message);

    served.stop.cancel();
    assert_eq!(timeout(TIMEOUT, answers.message()).await.unwrap().unwrap(), None);
    timeout(TIMEOUT, served.serving).await.unwrap().unwrap();
    assert!(!served.config.plugin_folder().join("dra.sock").exists());
    assert!(!served.config.registry_folder().join("gpu.nvidia.com@reg.sock").exists());
}

#[tokio::test]
async fn shutdown_waits_for_calls_but_not_for_idle_connections() {
    let served = serve(2);
    let path = served.config.plugin_folder().join("dra.sock");
    let _silent = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut client = DraPluginClient::new(connect(&served.config).await);
    let call = tokio::spawn(async move {
        let request = v1::NodePrepareResourcesRequest { claims: vec![claim("good", "u-1")] };
        client.node_prepare_resources(request).await.unwrap().into_inner().claims.len()
    });
    timeout(TIMEOUT, served.preparer.arrived.acquire()).await.unwrap().unwrap().forget();
    served.stop.cancel();
    // The call waits for a second one, so it is still running when the shutdown begins.
    assert!(!served.serving.is_finished());
    timeout(TIMEOUT, served.preparer.together.wait()).await.unwrap();
    assert_eq!(timeout(TIMEOUT, call).await.unwrap().unwrap(), 1);
    timeout(TIMEOUT, served.serving).await.unwrap().unwrap();
}
