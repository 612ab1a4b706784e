//! A pod's request. Pods with the same request share one shape and are decided alike.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::gpu::{ModelSet, WHOLE};
use crate::node::FeatureMask;
use crate::resources::Resources;

/// A pod's request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// CPU, memory, a pod place.
    pub resources: Resources,
    /// GPUs.
    pub gpus: GpuDemand,
    /// Models that will do. Of no meaning without GPUs.
    pub models: ModelSet,
    /// Features that a node must have: node selectors, required affinity.
    pub needs: FeatureMask,
    /// Taints that the pod tolerates.
    pub tolerates: FeatureMask,
}

/// GPUs of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum GpuDemand {
    /// None.
    #[default]
    None,
    /// Whole GPUs.
    Whole {
        /// How many.
        count: u16,
    },
    /// Parts of GPUs, of equal size and each of another GPU.
    Share {
        /// How many.
        count: u16,
        /// Compute of each in thousandths of a GPU: 0 to 1000. 0 is a share without guaranteed
        /// compute.
        milli: u16,
        /// Memory of each in MiB; 0: not counted.
        #[serde(default)]
        memory_mib: u32,
    },
    /// MIG instances of one profile, on any GPUs of the node.
    Mig {
        /// How many.
        count: u16,
        /// Name of the profile.
        #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
        profile: Arc<str>,
    },
}

fn write_name<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name)
}

fn read_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    Box::<str>::deserialize(deserializer).map(Arc::from)
}

impl Shape {
    /// A pod with these resources and GPUs and without constraints.
    pub fn new(resources: Resources, gpus: GpuDemand) -> Self {
        let (needs, tolerates) = (FeatureMask::NONE, FeatureMask::NONE);
        Self { resources, gpus, models: ModelSet::ALL, needs, tolerates }
    }
}

impl GpuDemand {
    /// A request for `count` GPUs of `milli` thousandths each, as in traces: whole GPUs at 1000,
    /// none if `count` is 0.
    pub fn of(count: u16, milli: u16) -> Self {
        match (count, milli) {
            (0, _) => Self::None,
            (count, WHOLE..) => Self::Whole { count },
            (count, milli) => Self::Share { count, milli, memory_mib: 0 },
        }
    }

    /// How many GPUs or instances.
    pub fn count(&self) -> u16 {
        match self {
            Self::None => 0,
            Self::Whole { count } | Self::Share { count, .. } | Self::Mig { count, .. } => *count,
        }
    }

    /// Compute of each GPU in thousandths. 0 for MIG instances, whose compute depends on the model.
    pub fn milli(&self) -> u16 {
        match self {
            Self::None | Self::Mig { .. } => 0,
            Self::Whole { .. } => WHOLE,
            Self::Share { milli, .. } => *milli,
        }
    }

    /// Compute of all GPUs in thousandths; 0 for MIG instances.
    pub fn total_milli(&self) -> i64 {
        i64::from(self.count()) * i64::from(self.milli())
    }

    /// Whether GPUs are asked for at all.
    pub fn is_some(&self) -> bool {
        self.count() > 0
    }
}
