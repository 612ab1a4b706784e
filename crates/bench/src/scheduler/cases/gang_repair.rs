//! One member of a large running gang that comes back: after its pod was deleted, and after its GPU was fenced.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use octavo_figure::Goal;
use serde_json::{Value, json};

use crate::scheduler::api::Kind;
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::workers;

/// Nodes at full size, in racks, and how many of them the gang fills.
pub(super) const NODES: usize = 80;
/// Nodes of each rack that the gang does not use, on average.
const FREE_OF_RACK: usize = 3;
const RACK: usize = LEVELS[1].1;
/// A rack, with nodes to spare.
pub(super) const MIN_NODES: usize = RACK;
/// Repairs of each kind in a turn.
const REPAIRS: usize = 10;
const GANG: &str = "gang";
const BLOCKER: &str = "blocker";
const GANG_TIMEOUT: Duration = Duration::from_mins(5);
const TIMEOUT: Duration = Duration::from_mins(1);

/// What has happened to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its pod was deleted.
    Deleted,
    /// Its GPU was fenced, and its pod deleted.
    Fenced,
}

/// A member's place: node and device.
type Place = (String, String);

/// Members of the gang on some nodes: it leaves room in each rack.
pub(super) fn members(nodes: usize) -> usize {
    (nodes - blockers(nodes)) * GPUS
}

fn blockers(nodes: usize) -> usize {
    nodes * FREE_OF_RACK / RACK + nodes / RACK / 5
}

/// Places the gang beside pods that leave, then repairs members one by one.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let nodes = testbed.world.nodes;
    testbed.start().await?;
    fill(testbed).await?;
    let mut places = places(testbed).await?;
    ensure!(places.len() == members(nodes), "{} members have devices", places.len());
    for number in 0..REPAIRS {
        for (fault, what) in [
            (Fault::Deleted, "a member is deleted: its next pod created to bound"),
            (Fault::Fenced, "a member's GPU is fenced: its next pod created to bound"),
        ] {
            let name = format!(
                "{GANG}-{}",
                (number * 61 + usize::from(fault == Fault::Fenced) * 7) % members(nodes)
            );
            let took = repair(testbed, &name, fault, &mut places).await?;
            measured.add_with_goal(what, "s", Goal::Below(2.0), took);
        }
    }
    let expected = Expected {
        bound: [(GANG.to_owned(), members(nodes)..=members(nodes))].into(),
        gangs: BTreeMap::new(),
    };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}

/// Binds the gang while other pods hold nodes of each rack, then ends these.
async fn fill(testbed: &Testbed) -> anyhow::Result<()> {
    let (nodes, contender) = (testbed.world.nodes, testbed.contender);
    let blockers = blockers(nodes);
    let api = testbed.api.clone();
    workers::in_parallel(blockers, move |number| {
        let api = api.clone();
        async move {
            // The racks in turn, each from its end.
            let racks = nodes.div_ceil(RACK);
            let node = ((number % racks + 1) * RACK).min(nodes) - 1 - number / racks;
            let mut pod =
                objects::pod(&format!("{BLOCKER}-{number}"), PodRequest::Gpus(GPUS), contender);
            pod["spec"]["nodeSelector"] =
                json!({"kubernetes.io/hostname": objects::node_name(node)});
            api.create(Kind::Pods, &pod).await.map(drop)
        }
    })
    .await?;
    testbed.observer.all_bound(BLOCKER, blockers, TIMEOUT).await?;
    let size = members(nodes);
    testbed
        .api
        .create(Kind::Groups, &objects::group(GANG, size, TopologyRequest::Anywhere))
        .await?;
    let api = testbed.api.clone();
    workers::in_parallel(size, move |number| {
        let api = api.clone();
        async move { api.create(Kind::Pods, &member(number, contender)).await.map(drop) }
    })
    .await?;
    testbed.observer.all_bound(GANG, size, GANG_TIMEOUT).await?;
    let names: Vec<String> = (0..blockers).map(|number| format!("{BLOCKER}-{number}")).collect();
    testbed.delete_pods(&names).await?;
    testbed.quiet().await
}

fn member(number: usize, contender: crate::scheduler::contender::Contender) -> Value {
    let pod = objects::pod(&format!("{GANG}-{number}"), PodRequest::Gpus(1), contender);
    let mut pod = objects::member(pod, GANG);
    pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] =
        number.to_string().into();
    pod
}

/// Deletes a member and creates it again. Returns the seconds from its creation to its binding. It must be in its rack, on no fenced GPU,
/// and the others where they were.
async fn repair(
    testbed: &Testbed,
    name: &str,
    fault: Fault,
    places: &mut BTreeMap<String, Place>,
) -> anyhow::Result<f64> {
    let before = places.get(name).with_context(|| format!("{name} has no device"))?.clone();
    if fault == Fault::Fenced {
        fence(testbed, &before).await?;
        testbed.quiet().await?;
    }
    testbed.delete_pods(&[name.to_owned()]).await?;
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
    let number = number.context("a member has a number")?;
    testbed.api.create(Kind::Pods, &member(number, testbed.contender)).await?;
    let created = Instant::now();
    let bound = |seen: &crate::scheduler::observer::ObservedState| seen.pods.get(name)?.bound;
    let bound = testbed.observer.until("the member is bound", TIMEOUT, bound).await?;
    testbed.quiet().await?;
    let after = self::places(testbed).await?;
    let new = after.get(name).with_context(|| format!("{name} has no device"))?;
    ensure!(
        rack(&new.0)? == rack(&before.0)?,
        "{name} was in the rack of {before:?}, and is at {new:?}"
    );
    ensure!(fault != Fault::Fenced || *new != before, "{name} is on its fenced GPU {new:?}");
    for (other, place) in places.iter().filter(|(other, _)| *other != name) {
        ensure!(after.get(other) == Some(place), "{other} has moved from {place:?}");
    }
    *places = after;
    Ok(bound.saturating_duration_since(created).as_secs_f64())
}

/// Taints a GPU as its node's agent does.
async fn fence(testbed: &Testbed, (node, device): &Place) -> anyhow::Result<()> {
    let slices = testbed.api.list::<Value>(Kind::Slices).await?.items;
    let is_it = |slice: &&Value| slice["spec"]["nodeName"] == **node;
    let slice = slices.iter().find(is_it).with_context(|| format!("{node} has no slice"))?;
    let mut spec = slice["spec"].clone();
    let generation = spec["pool"]["generation"].as_i64().unwrap_or(1);
    spec["pool"]["generation"] = (generation + 1).into();
    for published in spec["devices"].as_array_mut().into_iter().flatten() {
        if published["name"] == **device {
            let fenced =
                json!({"key": "gpu.nvidia.com/xid", "value": "95", "effect": "NoSchedule"});
            let mut taints = published["taints"].as_array().cloned().unwrap_or_default();
            taints.push(fenced);
            published["taints"] = taints.into();
        }
    }
    let name = slice["metadata"]["name"].as_str().context("a slice has a name")?;
    testbed.api.merge(Kind::Slices, name, &json!({"spec": spec})).await.map(drop)
}

/// The device of each member.
async fn places(testbed: &Testbed) -> anyhow::Result<BTreeMap<String, Place>> {
    let claims = testbed.api.list::<Value>(Kind::Claims).await?.items;
    let mut places = BTreeMap::new();
    for claim in &claims {
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        let (Some(node), Some(device)) = (result["pool"].as_str(), result["device"].as_str())
        else {
            continue;
        };
        for user in claim["status"]["reservedFor"].as_array().into_iter().flatten() {
            let name = user["name"].as_str().unwrap_or_default();
            if name.starts_with(GANG) {
                places.insert(name.to_owned(), (node.to_owned(), device.to_owned()));
            }
        }
    }
    Ok(places)
}

fn rack(node: &str) -> anyhow::Result<usize> {
    let number = node.rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
    number.map(|number| number / RACK).with_context(|| format!("{node} has no number"))
}
