//! Validation of a scheduler's result from the API server's final state. It shares no code with a
//! scheduler or with the observer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::api::{Api, Kind};
use super::contender::Contender;
use super::device_objects::GPU_AND_NIC_TEMPLATE;
use super::objects::{Gpus, TopologyRequest};
use super::observer::set_of;
use published::{DeviceKey, Published};

mod published;

/// Expectations beyond those that always hold.
#[derive(Debug)]
pub(super) struct Expected {
    /// Range of bound pods for each set.
    pub(super) bound: BTreeMap<String, RangeInclusive<usize>>,
    /// Sets that are gangs, with their topology request. All or none of their pods are bound.
    pub(super) gangs: BTreeMap<String, TopologyRequest>,
}

/// The API server's objects.
pub(super) struct Cluster {
    nodes: Vec<Value>,
    pods: Vec<Value>,
    claims: Vec<Value>,
    slices: Vec<Value>,
}

/// Reads the cluster and checks it.
pub(super) async fn check(
    api: &Api,
    contender: Contender,
    gpus: Gpus,
    expected: &Expected,
) -> anyhow::Result<()> {
    let is_dra = gpus.is_dra();
    let cluster = Cluster {
        nodes: api.list(Kind::Nodes).await?.items,
        pods: api.list(Kind::Pods).await?.items,
        claims: if is_dra { api.list(Kind::Claims).await?.items } else { Vec::new() },
        slices: if is_dra { api.list(Kind::Slices).await?.items } else { Vec::new() },
    };
    let checked = cluster.check(contender, is_dra, expected);
    checked.with_context(|| format!("the result of {} is invalid", contender.name()))
}

impl Cluster {
    fn check(&self, contender: Contender, is_dra: bool, expected: &Expected) -> anyhow::Result<()> {
        self.counts(expected)?;
        self.capacity(contender, is_dra)?;
        if is_dra {
            self.devices()?;
        }
        self.gangs(expected)
    }

    fn counts(&self, expected: &Expected) -> anyhow::Result<()> {
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| node_of(pod).is_some()) {
            *found.entry(set_of(name(pod))).or_default() += 1;
        }
        for (set, wanted) in &expected.bound {
            let bound = found.get(set.as_str()).copied().unwrap_or_default();
            let (least, most) = (wanted.start(), wanted.end());
            ensure!(
                bound >= *least,
                "{bound} pods of {set} are bound, and at least {least} are expected"
            );
            ensure!(
                bound <= *most,
                "{bound} pods of {set} are bound, and at most {most} are expected"
            );
        }
        Ok(())
    }

    /// No node has more than it offers, and every node is the contender's.
    fn capacity(&self, contender: Contender, is_dra: bool) -> anyhow::Result<()> {
        let nodes: BTreeMap<&str, &Value> =
            self.nodes.iter().map(|node| (name(node), node)).collect();
        let mut used: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
        for pod in &self.pods {
            let Some(node) = node_of(pod) else { continue };
            let node = nodes.get(node).with_context(|| format!("{} is on no node", name(pod)))?;
            if contender.is_octavo() {
                let owner = &node["metadata"]["labels"]["octavo.dev/scheduler"];
                ensure!(*owner == "octavo", "{} is on a node that Octavo does not own", name(pod));
            }
            let used = used.entry(name(node)).or_default();
            *used.entry("pods").or_default() += 1.0;
            for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
                for (resource, amount) in entries(&container["resources"]["requests"]) {
                    // Devices serve it if the node has no such resource.
                    if !(is_dra && resource == "nvidia.com/gpu") {
                        *used.entry(resource).or_default() += quantity(amount)?;
                    }
                }
            }
        }
        for (node, used) in used {
            let offered = &nodes[node]["status"]["allocatable"];
            for (resource, amount) in used {
                let has = quantity(&offered[resource])?;
                ensure!(amount <= has, "{node} has {has} {resource} and its pods {amount}");
            }
        }
        Ok(())
    }

    /// Every device is allocated at most once, on the node of its pod. Every bound pod has the
    /// devices that it requested.
    fn devices(&self) -> anyhow::Result<()> {
        let published = Published::of(&self.slices);
        let mut given = BTreeSet::new();
        let mut by_pod: BTreeMap<&str, Vec<DeviceKey<'_>>> = BTreeMap::new();
        for claim in &self.claims {
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            let devices: Vec<DeviceKey<'_>> =
                results.into_iter().flatten().map(DeviceKey::of_result).collect();
            for device in &devices {
                published
                    .node(device)
                    .with_context(|| format!("{device:?} of {} is not published", name(claim)))?;
                ensure!(given.insert(*device), "{device:?} is allocated twice");
            }
            published.constraints(claim, &devices)?;
            for consumer in claim["status"]["reservedFor"].as_array().into_iter().flatten() {
                by_pod.entry(text(&consumer["uid"])).or_default().extend(&devices);
            }
        }
        published.counters(&given)?;
        for pod in &self.pods {
            let Some(node) = node_of(pod) else { continue };
            let devices = by_pod.get(text(&pod["metadata"]["uid"])).map_or(&[][..], Vec::as_slice);
            let wanted = wanted_devices(pod);
            ensure!(
                devices.len() == wanted,
                "{} has {} devices, and requests {wanted}",
                name(pod),
                devices.len()
            );
            for device in devices {
                let other = published.node(device).unwrap_or_default();
                ensure!(
                    other == node,
                    "{} on {node} has the device {} of {other}",
                    name(pod),
                    device.device
                );
            }
        }
        Ok(())
    }

    /// Gangs are bound whole or not at all, and in one domain if they require it.
    fn gangs(&self, expected: &Expected) -> anyhow::Result<()> {
        let labels: BTreeMap<&str, &Value> =
            self.nodes.iter().map(|node| (name(node), &node["metadata"]["labels"])).collect();
        for (gang, topology) in &expected.gangs {
            let pods: Vec<&Value> =
                self.pods.iter().filter(|pod| set_of(name(pod)) == gang).collect();
            let nodes: Vec<&str> = pods.iter().filter_map(|pod| node_of(pod)).collect();
            ensure!(
                nodes.is_empty() || nodes.len() == pods.len(),
                "{} of {} pods of the gang {gang} are bound",
                nodes.len(),
                pods.len()
            );
            let TopologyRequest::Required(level) = topology else { continue };
            let domains: BTreeSet<&str> =
                nodes.iter().map(|node| text(&labels[*node][*level])).collect();
            ensure!(domains.len() <= 1, "the gang {gang} is in {} of {level}", domains.len());
        }
        Ok(())
    }
}

/// How many devices a pod asks for.
fn wanted_devices(pod: &Value) -> usize {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let extended: usize = containers
        .filter_map(|container| container["resources"]["limits"]["nvidia.com/gpu"].as_str())
        .filter_map(|count| count.parse::<usize>().ok())
        .sum();
    let of_claims = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let of_claims = of_claims.map(|claim| match claim["resourceClaimTemplateName"].as_str() {
        Some(GPU_AND_NIC_TEMPLATE) => 2,
        _ => 1,
    });
    extended + of_claims.sum::<usize>()
}

/// An amount as the API writes it.
fn quantity(amount: &Value) -> anyhow::Result<f64> {
    let amount = text(amount);
    let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
    let (number, unit) = amount.split_at(digits);
    let factor = match unit {
        "" => 1.0,
        "m" => 0.001,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => bail!("{amount:?} has a unit that this benchmark does not know"),
    };
    let number: f64 = number.parse().with_context(|| format!("{amount:?} is not a number"))?;
    Ok(number * factor)
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

#[cfg(test)]
mod tests;
