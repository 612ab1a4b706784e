//! Pods and faults of GPUs, from the driver's event to the member that comes back: agents, controller, Kubernetes' Job controller and the
//! scheduler do their parts.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_lab::{Owner, Owners, UpOptions};
use serde_json::{Value, json};

use crate::scheduler::{create_group, with_gpus};
use crate::testbed::{OCTAVO, Testbed, eventually};

/// The gang's object, and the Job that makes its pods.
const GANG: &str = "train";
/// Members, with a GPU each: more than a node has, and fewer than a rack.
const MEMBERS: usize = 12;
/// Nodes, of 8 GPUs, and how many of them are in a rack.
const NODES: usize = 4;
const RACK_NODES: usize = 2;
/// How long places are kept: long enough for a slow machine.
const HOLD_SECONDS: u32 = 240;

/// Where a member is: the UID of its pod, and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    uid: String,
    node: String,
    device: String,
}

impl Place {
    /// Whether both are the same device, whichever pod has it.
    fn is_same_device(&self, other: &Self) -> bool {
        (&self.node, &self.device) == (&other.node, &other.device)
    }
}

fn node_name(number: usize) -> String {
    format!("dgx-h100-{number}")
}

fn rack(node: &str) -> usize {
    let number: usize = node.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap();
    number / RACK_NODES
}

/// A lab with racks, whose GPUs are reset automatically, and whose pods leave GPUs that are out of service.
pub(crate) async fn lab() -> Testbed {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some(format!("dgx-h100={NODES}").parse().unwrap()),
        owners: Some(Owners::All(Owner::Octavo)),
        controller: Some(true),
        scheduler: Some(true),
        scheduler_config: Some(json!({"defragmentation": {"holdSeconds": HOLD_SECONDS}})),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    for number in 0..NODES {
        let name = node_name(number);
        let labels =
            json!({"pool": "h100", "topology.octavo.dev/rack": format!("rack-{}", rack(&name))});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        nodes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    let policies: Api<HealthPolicy> = Api::all(testbed.client.clone());
    let policy = serde_json::from_value(json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "act"},
        "spec": {"nodeSelector": {"pool": "h100"}, "mode": "Act", "evict": true},
    }));
    policies.create(&PostParams::default(), &policy.unwrap()).await.unwrap();
    let healths: Api<NodeHealth> = Api::all(testbed.client.clone());
    eventually("all agents have the policy", || async {
        let all = healths.list(&ListParams::default()).await.ok()?.items;
        let has_it = |health: &NodeHealth| {
            health.status.as_ref().is_some_and(|status| status.policy.is_some())
        };
        (all.len() == NODES && all.iter().all(has_it)).then_some(())
    })
    .await;
    testbed
}

/// Starts the gang's Job.
async fn start_job(testbed: &Testbed) {
    let mut template = with_gpus("unused", 1);
    template["metadata"] = json!({"labels": {"octavo.dev/pod-group": GANG}});
    template["spec"]["restartPolicy"] = "Never".into();
    testbed
        .create::<Job>(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": GANG},
            "spec": {
                "completionMode": "Indexed", "completions": MEMBERS, "parallelism": MEMBERS,
                "backoffLimit": 100, "template": {"metadata": template["metadata"], "spec": template["spec"]},
            },
        }))
        .await;
}

/// Where the members are, by index; none where one has no place yet.
async fn places(testbed: &Testbed) -> Option<BTreeMap<usize, Place>> {
    let of_gang = ListParams::default().labels(&format!("octavo.dev/pod-group={GANG}"));
    let pods = testbed.pods().list(&of_gang).await.ok()?.items;
    let claims = testbed.claims().list(&ListParams::default()).await.ok()?.items;
    let claims: Vec<Value> =
        claims.into_iter().map(|claim| serde_json::to_value(claim).unwrap()).collect();
    let mut places = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let index = pod.labels().get("batch.kubernetes.io/job-completion-index")?.parse().ok()?;
        let uid = pod.uid()?;
        let uses = |claim: &&Value| {
            let users = claim["status"]["reservedFor"].as_array();
            users.into_iter().flatten().any(|user| user["uid"] == *uid)
        };
        let claim = claims.iter().find(uses)?;
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        let node = pod.spec.as_ref()?.node_name.clone()?;
        assert_eq!(result["pool"], *node);
        places.insert(index, Place { uid, node, device: result["device"].as_str()?.to_owned() });
    }
    Some(places)
}

/// Waits until all members have places that satisfy `is_it`.
async fn members(
    testbed: &Testbed,
    what: &str,
    is_it: impl Fn(&BTreeMap<usize, Place>) -> bool,
) -> BTreeMap<usize, Place> {
    eventually(what, || async {
        let places = places(testbed).await?;
        (places.len() == MEMBERS && is_it(&places)).then_some(places)
    })
    .await
}

/// The number of a GPU, by the name of its device.
fn gpu(device: &str) -> &str {
    device.strip_prefix("gpu-").unwrap()
}

/// The first member on a node that has no free GPU.
fn member_on_full_node(places: &BTreeMap<usize, Place>) -> usize {
    let on = |node: &str| places.values().filter(|place| place.node == node).count();
    *places.iter().find(|(_, place)| on(&place.node) == 8).expect("a full node").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_keeps_its_places_but_for_a_fenced_gpu() {
    let testbed = lab().await;
    create_group(&testbed, GANG, &json!({"minMember": MEMBERS})).await;
    start_job(&testbed).await;
    let before = members(&testbed, "the gang is placed", |_| true).await;
    let home = rack(&before[&0].node);
    assert!(before.values().all(|place| rack(&place.node) == home), "one rack: {before:?}");

    let after = one_gpu_is_fenced(&testbed, &before).await;
    a_job_starts_again(&testbed, &after).await;
}

/// A GPU under a member of a full node is fenced. Its reset is in vain, so that it stays so.
async fn one_gpu_is_fenced(
    testbed: &Testbed,
    before: &BTreeMap<usize, Place>,
) -> BTreeMap<usize, Place> {
    let victim = member_on_full_node(before);
    let place = &before[&victim];
    let gpu = gpu(&place.device);
    testbed.octavo_ok(&["lab", "gpu", &place.node, gpu, "set", "--reset-in-vain", "true"]);
    testbed.octavo_ok(&["lab", "gpu", &place.node, gpu, "fail", "--xid", "95"]);
    let what = "the member has another GPU";
    let after = members(testbed, what, |places| places[&victim].uid != place.uid).await;
    assert!(!after[&victim].is_same_device(place), "{after:?}");
    assert_eq!(rack(&after[&victim].node), rack(&place.node), "it stays in its rack: {after:?}");
    for (index, place) in before.iter().filter(|(index, _)| **index != victim) {
        assert_eq!(&after[index], place, "member {index} has pod and place as before");
    }
    testbed.wait_until_event("GpuOutOfService", "").await;
    after
}

/// A member fails, and its framework starts the whole job again, while others wait for GPUs.
async fn a_job_starts_again(testbed: &Testbed, before: &BTreeMap<usize, Place>) {
    let free = NODES * 8 - MEMBERS - 1;
    for number in 0..free {
        testbed.create::<Pod>(with_gpus(&format!("filler-{number}"), 1)).await;
    }
    for number in 0..free {
        testbed.wait_until_bound(&format!("filler-{number}")).await;
    }
    let foreign = ["foreign-0", "foreign-1"];
    for name in foreign {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
        testbed.wait_until_unschedulable(name).await;
    }
    let is_failing = |pod: &Pod| pod.uid().as_ref() == Some(&before[&3].uid);
    let pods = testbed.pods().list(&ListParams::default()).await.unwrap().items;
    let name = pods.iter().find(|pod| is_failing(pod)).unwrap().name_any();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    testbed.pods().patch_status(&name, &PatchParams::default(), &failed).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(testbed.client.clone());
    jobs.delete(GANG, &DeleteParams::background()).await.unwrap();
    eventually("the job's pods and claims are gone", || async {
        let of_gang = ListParams::default().labels(&format!("octavo.dev/pod-group={GANG}"));
        let pods = testbed.pods().list(&of_gang).await.ok()?.items;
        let claims = testbed.claims().list(&ListParams::default()).await.ok()?.items;
        (pods.is_empty() && claims.len() == free).then_some(())
    })
    .await;
    start_job(testbed).await;
    let has_others = |places: &BTreeMap<usize, Place>| {
        places.iter().all(|(index, place)| place.uid != before[index].uid)
    };
    let after = members(testbed, "the gang is back", has_others).await;
    for (index, place) in &after {
        assert!(place.is_same_device(&before[index]), "member {index}: {place:?}, {before:?}");
    }
    for name in foreign {
        let pod = testbed.pods().get(name).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name, None, "no other pod gets a kept place");
    }
    crate::scheduler::allocated_devices(testbed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_gpu_is_given_last() {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=1".parse().unwrap()),
        owners: Some(Owners::All(Owner::Octavo)),
        scheduler: Some(true),
        // The command line finds the scheduler by its lease.
        scheduler_config: Some(json!({"leaderElection": {"enabled": true}})),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let node = node_name(0);
    testbed.octavo_ok(&[
        "lab",
        "gpu",
        &node,
        "0",
        "fail",
        "--xid",
        "94",
        "--recovery-action",
        "none",
    ]);
    let healths: Api<NodeHealth> = Api::all(testbed.client.clone());
    eventually("the GPU is watched", || async {
        let devices = healths.get(&node).await.ok()?.status?.devices;
        devices.iter().any(|device| device.name == "gpu-0" && device.state == "Watch").then_some(())
    })
    .await;
    let snapshot = testbed.lab.state_dir().join("pki/risks.json");
    eventually("the scheduler knows it", || async {
        // It fails until a scheduler leads.
        testbed.octavo(&["snapshot", "-o", &snapshot.display().to_string()]);
        let text = std::fs::read(&snapshot).ok()?;
        let snapshot: Value = serde_json::from_slice(&text).unwrap();
        let nodes = snapshot["nodes"].as_array().or(snapshot["cluster"]["nodes"].as_array())?;
        nodes.iter().any(|node| node["risks"]["0"] == "high").then_some(())
    })
    .await;
    let names: Vec<String> = (0..8).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
        testbed.wait_until_bound(name).await;
    }
    let last = testbed.pods().get("pod-7").await.unwrap().uid().unwrap();
    let claims = testbed.claims().list(&ListParams::default()).await.unwrap().items;
    let claims = claims.into_iter().map(|claim| serde_json::to_value(claim).unwrap());
    let of_last =
        claims.into_iter().find(|claim| claim["status"]["reservedFor"][0]["uid"] == *last);
    let device = &of_last.unwrap()["status"]["allocation"]["devices"]["results"][0]["device"];
    assert_eq!(device, "gpu-0");
    // The exit code is 3 while the pod starts.
    testbed.wait_until_running("pod-7").await;
    let text = testbed.octavo_ok(&["explain", "pod", "pod-7"]);
    assert!(text.contains("more than usual expected in a million hours"), "{text}");
}
