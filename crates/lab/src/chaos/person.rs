//! What a person does in a cluster: jobs end, nodes are drained and started again, boards are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::{Api, Client};

use super::inject::Injector;
use super::judge::{DeviceName, Judge};
use super::workload::NAMESPACE;
use crate::cluster::Lab;

/// Time in which a state is left to the programs.
const LEFT_ALONE: Duration = Duration::from_secs(5);
/// Time for a node to come up and be reported, before it is started once more.
const REBOOT: Duration = Duration::from_secs(30);

/// A person, who does what programs leave to one.
pub(super) struct Person<'a> {
    lab: &'a Lab,
    /// Nodes that take no pods, since they are to start again.
    cordoned: BTreeSet<String>,
    /// When nodes were last started again.
    rebooted: BTreeMap<String, Duration>,
    /// When boards were last replaced.
    replaced: BTreeMap<DeviceName, Duration>,
}

impl<'a> Person<'a> {
    /// The person of a lab. Nothing is done yet.
    pub(super) fn new(lab: &'a Lab) -> Self {
        Self {
            lab,
            cordoned: BTreeSet::new(),
            rebooted: BTreeMap::new(),
            replaced: BTreeMap::new(),
        }
    }

    /// Whether all nodes take pods again.
    pub(super) fn is_done(&self) -> bool {
        self.cordoned.is_empty()
    }

    /// Lets all nodes take pods again.
    pub(super) async fn leave(mut self, client: &Client) {
        for node in self.cordoned.clone() {
            self.cordon(client, &node, false).await;
        }
    }

    /// Does what is to be done.
    pub(super) async fn act(
        &mut self,
        client: &Client,
        judge: &mut Judge,
        injector: &Injector,
        at: Duration,
    ) -> anyhow::Result<()> {
        let is_old = |since: Duration| since + LEFT_ALONE <= at;
        let old = judge.devices().filter(|(_, device)| is_old(device.since));
        let old: Vec<(DeviceName, String, Option<String>)> = old
            .map(|(name, device)| {
                let reported = &device.reported;
                (name.clone(), reported.state.clone(), reported.waits.clone())
            })
            .collect();
        // Pods on a suspect GPU run on until their job ends, and so do those of a node that is to start again.
        let mut ends: BTreeSet<DeviceName> = BTreeSet::new();
        let mut waiting: BTreeSet<String> = BTreeSet::new();
        for (name, state, waits) in old {
            match (state.as_str(), waits.as_deref()) {
                ("Suspect", _) => ends.extend([name]),
                ("Retired", _) => self.replace(injector, &name, at).await?,
                ("Fenced", Some("RemedyByPerson")) => {
                    waiting.insert(name.node);
                }
                _ => {}
            }
        }
        for node in waiting.clone() {
            let of_node =
                judge.devices().map(|(other, _)| other).filter(|other| other.node == node);
            ends.extend(of_node.cloned());
            if self.cordon(client, &node, true).await {
                self.reboot(judge, injector, &node, at)?;
            }
        }
        for node in self.cordoned.difference(&waiting).cloned().collect::<Vec<_>>() {
            self.cordon(client, &node, false).await;
        }
        let ended: Vec<(String, String)> = judge
            .running()
            .filter(|(_, _, devices)| devices.iter().any(|device| ends.contains(device)))
            .map(|(uid, name, _)| (uid.to_owned(), name.to_owned()))
            .collect();
        for (uid, name) in ended {
            end(client, judge, &uid, &name).await?;
        }
        Ok(())
    }

    /// Ends the job of a pod that runs, by a number.
    pub(super) async fn end_job(
        &self,
        client: &Client,
        judge: &mut Judge,
        number: usize,
    ) -> anyhow::Result<()> {
        let running: Vec<(String, String)> =
            judge.running().map(|(uid, name, _)| (uid.to_owned(), name.to_owned())).collect();
        if running.is_empty() {
            return Ok(());
        }
        let (uid, name) = &running[number % running.len()];
        end(client, judge, uid, name).await
    }

    /// Lets a node take no pods, or again. Returns whether it is so; an API server that is killed is asked again.
    async fn cordon(&mut self, client: &Client, node: &str, is_cordoned: bool) -> bool {
        if self.cordoned.contains(node) == is_cordoned {
            return true;
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let done = if is_cordoned { nodes.cordon(node).await } else { nodes.uncordon(node).await };
        if let Err(error) = done {
            tracing::debug!(%error, node, is_cordoned, "the node is not changed yet");
            return false;
        }
        if is_cordoned {
            self.cordoned.insert(node.to_owned());
        } else {
            self.cordoned.remove(node);
        }
        true
    }

    /// Starts a node again once it has no pods.
    fn reboot(
        &mut self,
        judge: &mut Judge,
        injector: &Injector,
        node: &str,
        at: Duration,
    ) -> anyhow::Result<()> {
        let is_of_node = |devices: &BTreeSet<DeviceName>| devices.iter().any(|it| it.node == node);
        let is_empty = !judge.running().any(|(_, _, devices)| is_of_node(devices));
        let is_due = self.rebooted.get(node).is_none_or(|last| *last + REBOOT <= at);
        if is_empty && is_due {
            tracing::info!(node, "the node starts again");
            injector.reboot(node)?;
            judge.rebooted(node);
            self.rebooted.insert(node.to_owned(), at);
        }
        Ok(())
    }

    /// Replaces the board of a retired GPU and releases the GPU.
    async fn replace(
        &mut self,
        injector: &Injector,
        name: &DeviceName,
        at: Duration,
    ) -> anyhow::Result<()> {
        if self.replaced.get(name).is_some_and(|last| *last + REBOOT > at) {
            return Ok(());
        }
        self.replaced.insert(name.clone(), at);
        injector.replace_gpu(self.lab, name)?;
        let mut command = tokio::process::Command::new(&self.lab.settings().octavo);
        command.args([
            "health",
            "release",
            &name.node,
            &name.device,
            "--reason",
            "a new board",
            "--no-wait",
        ]);
        command.env("KUBECONFIG", self.lab.kubeconfig());
        let output = command.output().await.context("run octavo health release")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        // An API server that is killed is asked again after a while.
        if !output.status.success() {
            tracing::warn!(device = %name, error, "the GPU is not released yet");
            self.replaced.remove(name);
        }
        ensure!(output.status.code() != Some(2), "octavo health release: {error}");
        Ok(())
    }
}

/// Deletes a pod. An API server that is killed is asked again with the next job.
async fn end(client: &Client, judge: &mut Judge, uid: &str, name: &str) -> anyhow::Result<()> {
    judge.ended(uid);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    match pods.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => {
            tracing::debug!(%error, pod = name, "the pod is not deleted yet");
            Ok(())
        }
    }
}
