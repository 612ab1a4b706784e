//! Reconciles the slices: probes the server, plans, writes, reads back.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use super::features::{Content, Feature};
use super::plan::{self, Observed, ObservedSlice, Plan, Put, Wanted, Write};
use super::{Pool, Publisher, probe};

/// Limit of writes per attempt that meet another version of a slice than the known one.
const MAX_STALE_WRITES: usize = 16;

/// Identity of a pool's slices. A plan must outlive changes of the publisher.
struct PoolIdentity {
    driver: String,
    node: String,
    owner: OwnerReference,
}

/// Result of a write.
enum WriteOutcome {
    Kept,
    /// Fields were lost that change what may be offered.
    Lost,
    /// The slice differed from the known one and was read again: a new plan is needed.
    Stale(kube::Error),
}

impl PoolIdentity {
    fn wanted<'a>(&'a self, pool: &'a Pool, content: &'a Content<'a>) -> Wanted<'a> {
        Wanted {
            driver: &self.driver,
            node: &self.node,
            pool: &pool.name,
            counters: content.counters,
            devices: &content.devices,
            owner: &self.owner,
        }
    }
}

impl Publisher {
    pub(super) async fn reconcile(&mut self, pool: &Pool) -> Result<(), kube::Error> {
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        self.features.observe_shares(self.found.values().any(|slice| slice.shows_shares));
        let (mut losses, mut stale) = (0, 0);
        'plan: loop {
            let owner = self.owner().await?;
            let identity =
                PoolIdentity { driver: self.driver.clone(), node: self.node.clone(), owner };
            self.ask(&api, pool, &identity).await?;
            let content = self.features.content(pool);
            let plan = plan::plan(&identity.wanted(pool, &content), &self.seen());
            for write in &plan.writes {
                match self.write(&api, &identity, &plan, write).await? {
                    WriteOutcome::Kept => {}
                    // Each loss but the last reveals a feature that is dropped.
                    WriteOutcome::Lost if losses == Feature::ALL.len() => return Ok(()),
                    WriteOutcome::Lost => {
                        losses += 1;
                        continue 'plan;
                    }
                    WriteOutcome::Stale(error) if stale == MAX_STALE_WRITES => return Err(error),
                    WriteOutcome::Stale(error) => {
                        tracing::debug!(node = %self.node, %error, "a slice differs from the known one");
                        stale += 1;
                        continue 'plan;
                    }
                }
            }
            return Ok(());
        }
    }

    fn seen(&self) -> Observed<'_> {
        Observed {
            found: &self.found,
            taken: &self.taken,
            server_mutations: &self.server_mutations,
        }
    }

    /// Probes the features that the pool uses, where their state is unknown and matters.
    async fn ask(
        &mut self,
        api: &Api<ResourceSlice>,
        pool: &Pool,
        identity: &PoolIdentity,
    ) -> Result<(), kube::Error> {
        let PoolIdentity { driver, node, .. } = identity;
        let name = plan::name(driver, node, "probe");
        let place = probe::ProbeTarget { driver, node, pool: &pool.name, name: &name };
        // Shares come last, when the other writes are known.
        for feature in
            [Feature::Counters, Feature::Taints, Feature::TaintsWithoutEffect, Feature::Shares]
        {
            if !self.features.is_unknown(feature, pool) {
                continue;
            }
            // A server that drops shares leaves whole GPUs, so write and read back suffices. A
            // probe is needed only if the existing slices already look like those of such a server.
            if feature == Feature::Shares {
                let mut without = self.features.clone();
                without.set(feature, false);
                let content = without.content(pool);
                let plan = plan::plan(&identity.wanted(pool, &content), &self.seen());
                if !plan.writes.is_empty() {
                    continue;
                }
            }
            probe::probe(api, place, feature, &mut self.features).await?;
            if self.features.drops(feature) {
                self.log_dropped(feature);
            }
        }
        Ok(())
    }

    fn log_dropped(&self, feature: Feature) {
        let (gate, loss) = (feature.gate(), feature.loss());
        tracing::warn!(node = %self.node, gate, loss, "the API server drops fields of our devices");
    }

    async fn write(
        &mut self,
        api: &Api<ResourceSlice>,
        identity: &PoolIdentity,
        plan: &Plan<'_>,
        write: &Write<'_>,
    ) -> Result<WriteOutcome, kube::Error> {
        let put = match write {
            Write::Put(put) => put,
            Write::Delete(name) => {
                match api.delete(name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => drop(other?),
                }
                self.found.remove(name);
                self.writes += 1;
                return Ok(WriteOutcome::Kept);
            }
        };
        let sent = plan.slice(put);
        let answer = if put.is_new {
            api.create(&PostParams::default(), &sent).await
        } else {
            api.replace(&put.name, &PostParams::default(), &sent).await
        };
        let kept = match answer {
            Ok(kept) => kept,
            Err(error) if is_stale(&error, put) => {
                self.refetch(api, identity, &put.name).await?;
                return Ok(WriteOutcome::Stale(error));
            }
            Err(error) => return Err(error),
        };
        self.writes += 1;
        let lost = self.features.compare(&sent, &kept);
        for feature in &lost {
            self.log_dropped(*feature);
        }
        if self.server_mutations.remember(&sent, &kept) && lost.is_empty() {
            let slice = &put.name;
            tracing::warn!(node = %self.node, slice, "the API server changed a slice that we wrote");
        }
        self.found.insert(put.name.clone(), ObservedSlice::of(&kept));
        Ok(if lost.is_empty() { WriteOutcome::Kept } else { WriteOutcome::Lost })
    }

    /// Reads a slice that differs from the known one: after a foreign write, or after one of ours
    /// without answer.
    async fn refetch(
        &mut self,
        api: &Api<ResourceSlice>,
        identity: &PoolIdentity,
        name: &str,
    ) -> Result<(), kube::Error> {
        match api.get_opt(name).await? {
            Some(slice) if ObservedSlice::of(&slice).is_of(&identity.driver, &identity.node) => {
                self.note(&slice);
            }
            Some(_) => {
                self.found.remove(name);
                self.taken.insert(name.to_owned());
            }
            None => {
                self.found.remove(name);
                // Slices are deleted with their node, so a new node may have to own new ones.
                self.owner = None;
            }
        }
        Ok(())
    }

    /// The node, which owns its slices, so that they are deleted with it.
    async fn owner(&mut self) -> Result<OwnerReference, kube::Error> {
        if let Some(owner) = &self.owner {
            return Ok(owner.clone());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get_metadata(&self.node).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        self.owner = Some(owner.clone());
        Ok(owner)
    }
}

/// Whether a write was rejected because the slice differs from the known one.
fn is_stale(error: &kube::Error, put: &Put<'_>) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 409 || (status.code == 404 && !put.is_new),
        _ => false,
    }
}
