//! Random sequences of events, with watches that lag behind, on a server in memory.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::{ComputeDomainNode, Readiness};
use octavo_api::imex::{ImexIsolation, ImexServices};
use octavo_api::names::SHARED_IMEX_DOMAIN;
use octavo_testkit::Rng;

use super::*;
use crate::config::Config;
use crate::store::{Fact, KINDS, Key, Kind, Store};
use crate::testing::{claim, domain, object};
use crate::view::{Domain, OwnedKind};

const NODES: usize = 7;
const DOMAINS: [&str; 3] = ["a", "b", "c"];

struct World {
    rng: Rng,
    server: Server,
    store: Store,
    dirty: BTreeSet<String>,
    /// Writes that arrive late, when another controller may lead.
    late: Vec<Write>,
    /// Index by clique and node, since the node's entry exists.
    indices: BTreeMap<(String, String), i64>,
    config: Config,
    /// Channel by domain and clique, since the domain has members there.
    channels: BTreeMap<(String, String), u32>,
}

impl World {
    fn new(seed: u64, config: Config) -> Self {
        let mut server = Server::default();
        for number in 0..NODES {
            let clique = [
                None,
                Some("c.0"),
                Some("c.1"),
                Some("c.1"),
                Some("c.1"),
                Some("c.1"),
                Some("c.1"),
            ];
            server.put_node(&format!("n{number}"), clique[number], None);
        }
        for kind in KINDS {
            server.relist(kind);
        }
        server.encrypts = config.imex.encryption;
        let (dirty, late, indices, channels) = Default::default();
        let store = Store::new(config.services());
        Self { rng: Rng::new(seed), server, store, dirty, late, indices, config, channels }
    }

    /// A change by users, kubelets, nodes or daemons.
    fn event(&mut self) {
        let uid = self.rng.word(&DOMAINS);
        let node = format!("n{}", self.rng.below(NODES));
        let name = format!("domain-{uid}");
        match self.rng.below(14) {
            0 if self.server.domain(&name).is_none() => {
                self.server.put_domain(Domain { finalizers: Vec::new(), ..domain(uid) });
            }
            1 if self.rng.chance(30) && self.server.domain(&name).is_some() => {
                self.server.delete_domain(&name);
            }
            2..=4 if self.server.domain(&name).is_some_and(|domain| !domain.is_deleting) => {
                self.server.put_claim(claim(uid, &node));
            }
            5..=6 => self.remove_any(Kind::Claim),
            7 if self.rng.chance(30) => self.remove_any(Kind::Pod),
            8 if self.rng.chance(20) => {
                let kind = *self.rng.pick(&KINDS);
                self.server.relist(kind);
            }
            9 if self.rng.chance(20) => {
                let name = format!("template-{uid}");
                if self.server.fact(Kind::Template, "team", &name).is_none() {
                    self.server.put_template(object(OwnedKind::Template, "team", &name, None));
                }
            }
            10..=12 if !self.late.is_empty() => {
                let write = self.late.swap_remove(self.rng.below(self.late.len()));
                // It may be refused.
                let _ = self.server.write(&write);
                self.check_indices();
            }
            _ => {
                let rng = &mut self.rng;
                self.server.step_daemons(|| rng.chance(50));
            }
        }
    }

    fn remove_any(&mut self, kind: Kind) {
        let keys: Vec<Key> =
            self.server.objects.keys().filter(|key| key.kind == kind).cloned().collect();
        if !keys.is_empty() {
            let key = self.rng.pick(&keys).clone();
            self.server.remove(&key);
        }
    }

    /// Some watches deliver some of their events.
    fn deliver(&mut self, percent: usize) {
        let mut events = std::mem::take(&mut self.server.events);
        for changes in events.values_mut() {
            let count = if self.rng.chance(percent) {
                changes.len()
            } else {
                self.rng.below(changes.len() + 1)
            };
            for change in changes.drain(..count) {
                self.dirty.extend(self.store.apply(change));
            }
        }
        self.server.events = events;
    }

    /// Plans a dirty domain. Its writes are carried out in any order; some may be lost.
    fn plan_one(&mut self, loses: bool) -> bool {
        let dirty: Vec<String> = self.dirty.iter().cloned().collect();
        if dirty.is_empty() || !self.store.is_complete() {
            return false;
        }
        let uid = self.rng.pick(&dirty).clone();
        self.dirty.remove(&uid);
        let view = self.store.view(&uid);
        let plan = plan(&view, &self.config);
        if view.domain.is_some() || view.claims.is_empty() {
            self.store.decide(&uid, plan.channels(&view));
        }
        let mut writes: Vec<Write> = plan.writes.into_iter().chain(plan.status).collect();
        self.rng.shuffle(&mut writes);
        for write in &writes {
            let live = self.live_entries();
            let answer =
                if loses && self.rng.chance(10) { Err("lost") } else { self.server.write(write) };
            self.check_indices();
            self.check_channels();
            self.check_certificates();
            if let Write::RemoveEntries { .. } = write {
                assert!(live.is_subset(&self.live_entries()), "a running daemon lost its entry");
            }
            let Ok(change) = answer else {
                if matches!(write, Write::AssignIndices { .. } | Write::LabelNode { .. }) {
                    self.late.push(write.clone());
                }
                self.dirty.insert(uid.clone());
                continue;
            };
            self.dirty.extend(self.store.apply_own(change));
        }
        true
    }

    /// Entries of daemons whose pod runs.
    fn live_entries(&self) -> BTreeSet<(String, String)> {
        let addresses: BTreeSet<String> =
            self.server.pods().into_iter().map(|(_, pod)| pod.ip).collect();
        let mut entries = BTreeSet::new();
        for key in self.server.objects.keys().filter(|key| key.kind == Kind::Clique) {
            for daemon in self.server.clique(&key.name).unwrap().daemons {
                if addresses.contains(&daemon.ip_address) {
                    entries.insert((key.name.clone(), daemon.node_name));
                }
            }
        }
        entries
    }

    /// All daemons of an IMEX domain have the same certificate, unless some end.
    fn check_certificates(&self) {
        let mut found: BTreeMap<String, &String> = BTreeMap::new();
        for (key, pod) in self.server.pods() {
            let certificate = self.server.certificates.get(&key);
            assert_eq!(certificate.is_some(), self.server.encrypts && !pod.ip.is_empty());
            if let Some(certificate) = certificate
                && !pod.is_deleting
            {
                let first = found.entry(pod.domain).or_insert(certificate);
                assert_eq!(*first, certificate, "two certificates: {key:?}");
            }
        }
    }

    /// No index is given twice, and none changes while its entry exists.
    fn check_indices(&mut self) {
        let mut now = BTreeMap::new();
        for key in self.server.objects.keys().filter(|key| key.kind == Kind::Clique) {
            let mut given = BTreeSet::new();
            for daemon in self.server.clique(&key.name).unwrap().daemons {
                let place = (key.name.clone(), daemon.node_name.clone());
                let before = self.indices.get(&place);
                if before.is_some() {
                    assert_eq!(daemon.index.as_ref(), before, "{place:?} has another index");
                }
                if let Some(index) = daemon.index {
                    assert!((0..4).contains(&index), "{index}");
                    assert!(given.insert(index), "{index} of {} is given twice", key.name);
                    now.insert(place, index);
                }
            }
        }
        self.indices = now;
    }

    /// Cliques in which a domain has members, by its UID.
    fn cliques_of_members(&self) -> BTreeSet<(String, String)> {
        let cliques: BTreeMap<String, Option<String>> =
            self.server.nodes().into_iter().map(|(node, clique, _)| (node, clique)).collect();
        let claims = self.server.objects.values().filter_map(|object| match &object.fact {
            Some(Fact::Claim(claim)) => Some(claim),
            _ => None,
        });
        let cliques = claims
            .filter_map(|claim| Some((claim.domain.clone(), cliques.get(&claim.node)?.clone()?)));
        cliques.collect()
    }

    /// No two domains have one channel of a clique, and a domain with members there keeps its own.
    fn check_channels(&mut self) {
        let (mut now, mut given) = (BTreeMap::new(), BTreeSet::new());
        let members = self.cliques_of_members();
        for uid in DOMAINS {
            let domain = self.server.domain(&format!("domain-{uid}"));
            let status = domain.and_then(|domain| domain.status).unwrap_or_default();
            for channel in status.channels {
                let place = (uid.to_owned(), channel.clique_id.clone());
                let number = channel.channel;
                assert!(given.insert((channel.clique_id, number)), "{number} is given twice");
                if members.contains(&place) {
                    if let Some(before) = self.channels.get(&place) {
                        assert_eq!(number, *before, "{place:?} has another channel");
                    }
                    now.insert(place, number);
                }
            }
        }
        self.channels = now;
    }

    /// Lets everything happen that is to happen.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.deliver(100);
            let has_planned = self.plan_one(false);
            let has_stepped = self.server.step_daemons(|| true);
            self.check_indices();
            self.check_channels();
            self.check_certificates();
            if !has_planned && !has_stepped && self.server.events.values().all(Vec::is_empty) {
                return;
            }
        }
        panic!("the domains do not settle: {:?}", self.dirty);
    }

    fn check_settled(&self) {
        let observed = observe_with(&self.server, &self.config);
        for uid in self.store.all_uids().iter().chain(&observed.all_uids()) {
            for store in [&self.store, &observed] {
                let plan = plan(&store.view(uid), &self.config);
                assert!(plan.writes.is_empty() && plan.status.is_none(), "{uid}: {plan:?}");
            }
        }
        if self.config.services() == ImexServices::PerClique {
            self.check_settled_channels();
            return;
        }
        for (node, _, label) in self.server.nodes() {
            let claims = self.server.objects.values().filter_map(|object| match &object.fact {
                Some(Fact::Claim(claim)) if claim.node == node => Some(claim.domain.clone()),
                _ => None,
            });
            let claims: BTreeSet<String> = claims.collect();
            let is_right = match label {
                Some(label) => claims.contains(&label),
                None => {
                    claims.iter().all(|uid| self.server.domain(&format!("domain-{uid}")).is_none())
                }
            };
            assert!(is_right, "the label of {node} is not of {claims:?}");
        }
    }

    /// Domains that live have a channel where they have members, and their nodes are ready. No node has a label.
    fn check_settled_channels(&self) {
        for (uid, clique) in self.cliques_of_members() {
            let Some(domain) = self.server.domain(&format!("domain-{uid}")) else { continue };
            let status = domain.status.unwrap();
            assert!(status.channel(&clique).is_some(), "{uid} has no channel in {clique}");
            let waits = |node: &&ComputeDomainNode| node.status == Readiness::NotReady;
            // A clique of the tests has one node more than it has slots.
            assert!(status.nodes.iter().filter(waits).count() <= 1, "{:?}", status.nodes);
        }
        assert!(self.server.nodes().iter().all(|(.., label)| label.is_none()));
    }

    /// Ends all claims and domains.
    fn end(&mut self) {
        while self.server.objects.keys().any(|key| key.kind == Kind::Claim) {
            self.remove_any(Kind::Claim);
        }
        for uid in DOMAINS {
            let name = format!("domain-{uid}");
            if self.server.domain(&name).is_some_and(|domain| !domain.is_deleting) {
                self.server.delete_domain(&name);
            }
        }
        self.settle();
        for (key, object) in &self.server.objects {
            let is_of_others = match &object.fact {
                Some(Fact::Node { label, .. }) => label.is_none(),
                Some(Fact::Template(object) | Fact::DaemonSet(object)) => {
                    object.domain.is_none() || object.is_of(SHARED_IMEX_DOMAIN)
                }
                Some(Fact::Clique(clique)) => clique.object.is_of(SHARED_IMEX_DOMAIN),
                Some(Fact::Pod(pod)) => pod.domain == SHARED_IMEX_DOMAIN,
                Some(Fact::Secret(secret)) => secret.domain == SHARED_IMEX_DOMAIN,
                _ => false,
            };
            assert!(is_of_others, "{key:?} is left");
        }
    }
}

fn run(config: &Config) {
    for seed in 0..40 {
        let mut world = World::new(seed, config.clone());
        for round in 0..3 {
            for _ in 0..60 {
                world.event();
                world.deliver(40);
                for _ in 0..world.rng.below(4) {
                    world.plan_one(true);
                }
            }
            world.settle();
            world.check_settled();
            if round == 1 {
                // Another controller takes over, and knows nothing of what was.
                world.store = Store::new(config.services());
                for kind in KINDS {
                    world.server.relist(kind);
                }
            }
        }
        world.end();
    }
}

#[test]
fn domains_settle_after_any_sequence_and_leave_nothing() {
    run(&config());
}

#[test]
fn domains_that_share_cliques_settle_after_any_sequence_with_a_channel_each() {
    let mut config = config();
    config.imex.isolation = ImexIsolation::Channel;
    run(&config);
}

#[test]
fn domains_that_encrypt_settle_after_any_sequence_with_a_certificate_each() {
    for isolation in [ImexIsolation::Domain, ImexIsolation::Channel] {
        let mut config = config();
        (config.imex.isolation, config.imex.encryption) = (isolation, true);
        run(&config);
    }
}
