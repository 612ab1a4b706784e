//! The nodes that decisions consider for a pod.

use std::collections::BTreeSet;

use octavo_engine::fit;
use octavo_kube_io::objects::{NodeName, ObjectName};

use crate::state::Scheduler;
use crate::state::cycle::decide::Room;

impl Scheduler {
    /// Nodes on which a pending single pod could be placed now without victims, as decisions see it:
    /// by the engine's node classes and amounts, and by what forbids nodes beside. Empty for a pod
    /// that cannot be decided on.
    pub fn feasible_nodes(&mut self, name: &ObjectName) -> BTreeSet<NodeName> {
        self.rebuild_engine_if_stale();
        let Some(uid) = self.cache.pod_named(name).cloned() else { return BTreeSet::new() };
        let Ok(ask) = self.ask(&uid) else { return BTreeSet::new() };
        let Some((shape, mask)) = self.shape_of_waiting(&uid, &ask) else {
            return BTreeSet::new();
        };
        let away = self.cache.exclusions(&uid);
        let forbidden = self.cache.forbidden_nodes(&uid, mask, &ask, &away, Room::Now);
        let cluster = &self.cache.engine().world.cluster;
        cluster
            .nodes()
            .filter(|node| !forbidden.contains(node))
            .filter(|node| fit::times_on(cluster, *node, &shape) > 0)
            .map(|node| cluster.name(node).into())
            .collect()
    }
}
