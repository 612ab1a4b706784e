//! A published GPU and its holders: the row of all reports.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::names::CAPACITY_COMPUTE;
use octavo_dra::Device;
use serde::Serialize;

use crate::device;
use crate::snapshot::{ClusterSnapshot, DRIVER, GapKind, Holder, Holders, Node, Pool, Share};

/// A device and its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuUse {
    /// Node that has it.
    pub node: String,
    /// Name of the device in its pool.
    pub device: String,
    /// Driver's UUID; absent for a partition that does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Product, as the driver names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Published memory, such as `81559Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Its current use or availability.
    pub state: GpuState,
    /// Taints that keep new pods away, as `key=value:Effect`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// The scheduler that alone gives it; absent where any may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Holders of it, or of parts of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// Its free capacity, if it is held in shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<FreeCapacity>,
    /// Its MIG devices, if it is in MIG mode, in which it is not offered whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigUse>,
    #[serde(skip)]
    pub(crate) whole: bool,
}

/// The MIG devices of a GPU in MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigUse {
    /// MIG devices that claims hold.
    pub held: usize,
    /// Existing MIG devices; absent for dynamic MIG, where placements overlap and most are no devices yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
}

/// Free capacity of a GPU that is held in shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FreeCapacity {
    /// Memory, as a quantity.
    pub memory: String,
    /// Unreserved compute time, in percent.
    pub compute: String,
}

/// Use or availability of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GpuState {
    /// A claim holds all of it.
    Used,
    /// Claims hold shares of it.
    Shared,
    /// A GPU whose MIG devices claims hold.
    Partitioned,
    /// No claim holds it or a part of it, and no taint keeps pods away.
    Free,
    /// No claim holds it, and a taint keeps pods away.
    Tainted,
    /// No claim holds it, and its node is cordoned, not ready or gone.
    NodeUnavailable,
}

impl GpuUse {
    /// Whether pods of a scheduler may get it.
    pub(crate) fn is_for(&self, scheduler: &str) -> bool {
        self.scheduler.as_ref().is_none_or(|owner| owner == scheduler)
    }

    /// Its shares with their holders.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&Holder, &Share)> {
        self.holders.iter().filter_map(|holder| Some((holder, holder.share.as_ref()?)))
    }
}

impl GpuState {
    /// Whether a claim holds it or a part of it.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Used | Self::Shared | Self::Partitioned)
    }

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Shared => "shared",
            Self::Partitioned => "partitioned",
            Self::Free => "free",
            Self::Tainted => "tainted",
            Self::NodeUnavailable => "node unavailable",
        }
    }
}

/// All whole GPUs and all other held devices, in order of node and of the node's slices.
pub fn gpus(snapshot: &ClusterSnapshot, holders: &Holders) -> Vec<GpuUse> {
    let mut rows = Vec::new();
    let reported = snapshot.reported_uuids();
    for (name, pool) in &snapshot.pools {
        for published in &pool.devices {
            let held_by = holders.get(name, &published.name);
            let whole = device::is_gpu(published);
            if !whole && held_by.is_empty() {
                continue;
            }
            let taints = device::blocking_taints(published);
            let is_partition = |holder: &Holder| holder.via_part;
            let state = if held_by.iter().any(|holder| holder.share.is_some()) {
                GpuState::Shared
            } else if !held_by.is_empty() && held_by.iter().all(is_partition) {
                GpuState::Partitioned
            } else if !held_by.is_empty() {
                GpuState::Used
            } else if !taints.is_empty() {
                GpuState::Tainted
            } else if node_takes_pods(snapshot, pool) {
                GpuState::Free
            } else {
                GpuState::NodeUnavailable
            };
            rows.push(GpuUse {
                node: pool.node.clone(),
                device: published.name.clone(),
                uuid: device::text(published, "uuid")
                    .or_else(|| reported.get(&(&**name, &*published.name)).copied())
                    .map(str::to_owned),
                product: device::text(published, "productName").map(str::to_owned),
                memory: device::memory(published),
                state,
                taints,
                scheduler: device::scheduler(published).map(str::to_owned),
                left: (state == GpuState::Shared).then(|| left(published, held_by)).flatten(),
                holders: held_by.to_vec(),
                mig: None,
                whole,
            });
        }
    }
    sort(&mut rows);
    rows
}

/// The rows of [`gpus`], and the GPUs in MIG mode, of which only MIG devices are published.
pub fn gpus_with_mig_mode(snapshot: &ClusterSnapshot, holders: &Holders) -> Vec<GpuUse> {
    let mut rows = gpus(snapshot, holders);
    for (name, pool) in &snapshot.pools {
        let whole = pool.devices.iter().filter(|published| device::is_gpu(published));
        let whole: BTreeSet<&str> =
            whole.filter_map(|published| device::text(published, "uuid")).collect();
        let mut parts: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
        for published in &pool.devices {
            if let Some(parent) = device::text(published, "parentUUID")
                && !whole.contains(parent)
            {
                parts.entry(parent).or_default().push(published);
            }
        }
        for (uuid, parts) in parts {
            let held_by = |part: &&Device| holders.get(name, &part.name);
            rows.extend(in_mig_mode(uuid, &parts, held_by, pool, node_takes_pods(snapshot, pool)));
        }
    }
    sort(&mut rows);
    rows
}

/// The row of a GPU in MIG mode, from its MIG devices.
fn in_mig_mode<'a>(
    uuid: &str,
    parts: &[&Device],
    held_by: impl Fn(&&Device) -> &'a [Holder],
    pool: &Pool,
    takes_pods: bool,
) -> Option<GpuUse> {
    let first = parts.first()?;
    let mut holders: Vec<Holder> = Vec::new();
    for holder in parts.iter().flat_map(&held_by) {
        let holder = Holder { via_part: true, share: None, ..holder.clone() };
        if !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    // The health of a GPU taints all its MIG devices.
    let mut taints = device::blocking_taints(first);
    taints.retain(|taint| parts.iter().all(|part| device::blocking_taints(part).contains(taint)));
    let state = match () {
        () if !holders.is_empty() => GpuState::Partitioned,
        () if !taints.is_empty() => GpuState::Tainted,
        () if takes_pods => GpuState::Free,
        () => GpuState::NodeUnavailable,
    };
    // A placement that is no device yet has no UUID.
    let exist = parts.iter().all(|part| device::text(part, "uuid").is_some());
    let held = parts.iter().filter(|part| !held_by(part).is_empty()).count();
    // `gpu-0` of `gpu-0-mig-1g10gb-19-0`.
    let gpu = first.name.split_once("-mig-").map_or(uuid, |(gpu, _)| gpu);
    Some(GpuUse {
        node: pool.node.clone(),
        device: gpu.to_owned(),
        uuid: Some(uuid.to_owned()),
        product: device::text(first, "productName").map(str::to_owned),
        memory: None,
        state,
        taints,
        scheduler: device::scheduler(first).map(str::to_owned),
        holders,
        left: None,
        mig: Some(MigUse { held, devices: exist.then_some(parts.len()) }),
        whole: false,
    })
}

/// Sorts rows by node and device. Rows of a node stay together even where two names are equal as
/// numbers: `n-1` and `n-01`. MIG devices follow their GPU, wherever the slices list them.
fn sort(rows: &mut [GpuUse]) {
    rows.sort_by_cached_key(|row| {
        (natural_sort_key(&row.node), row.node.clone(), natural_sort_key(&row.device))
    });
}

/// The free capacity of a shared GPU.
fn left(gpu: &Device, holders: &[Holder]) -> Option<FreeCapacity> {
    let shares = || holders.iter().filter_map(|holder| holder.share.as_ref());
    let memory = device::shareable_memory(gpu)?;
    let memory = shares().try_fold(memory, |left, share| left.checked_sub(share.memory))?;
    let compute = device::capacity(gpu, CAPACITY_COMPUTE)?.value;
    let compute = shares().try_fold(compute, |left, share| left.checked_sub(share.compute))?;
    Some(FreeCapacity { memory: memory.to_string(), compute: compute.to_string() })
}

/// A key under which `node-10` follows `node-9`.
pub(crate) fn natural_sort_key(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        key.push((text.to_owned(), number.parse().unwrap_or_default()));
        rest = tail;
    }
    key
}

/// Names of pools in which slices are missing.
pub(crate) fn incomplete_pools(snapshot: &ClusterSnapshot) -> Vec<String> {
    snapshot
        .pools
        .iter()
        .filter(|(_, pool)| !pool.is_complete())
        .map(|(name, pool)| {
            format!("{name} ({} of {} slices)", pool.slices_seen, pool.slices_announced)
        })
        .collect()
}

/// The names of holders, such as `team-a/train, team-b/serve`.
pub(crate) fn holder_names(holders: &[Holder]) -> String {
    holders.iter().flat_map(Holder::names).collect::<Vec<_>>().join(", ")
}

/// The driver of the devices, for headings.
pub(crate) const fn driver() -> &'static str {
    DRIVER
}

/// Unreadable nodes are assumed to accept pods; missing nodes are not.
fn node_takes_pods(snapshot: &ClusterSnapshot, pool: &Pool) -> bool {
    if snapshot.lacks(GapKind::Nodes) {
        return true;
    }
    matches!(snapshot.nodes.get(&pool.node), Some(Node { ready: true, cordoned: false, .. }))
}
