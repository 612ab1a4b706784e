//! The GPU models of a cluster: what a percentage of a GPU's memory is.

use octavo_dra::Quantity;
use serde::Deserialize;

/// Bytes of a MiB.
const MIB: i128 = 1 << 20;

/// A GPU model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuModel {
    /// Attribute `productName` of its devices, which is NVML's name: `NVIDIA H100 80GB HBM3`.
    pub product_name: String,
    /// Capacity `memory` of its devices in MiB, which is NVML's total.
    pub memory_mib: u64,
}

/// GPU models with different names, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models(Vec<GpuModel>);

/// Where a list of GPU models comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelSource {
    /// A file, or the machine descriptions that ship.
    #[default]
    File,
    /// The `ResourceSlice`s of a cluster.
    Cluster,
}

impl ModelSource {
    /// What to do where no known GPU has as much memory.
    pub(crate) const fn remedy_for_memory(self) -> &'static str {
        match self {
            Self::File => "ask for less, or add the cluster's GPU to the list of models (--models)",
            Self::Cluster => "ask for less, or for several GPUs",
        }
    }

    /// What to do where a pod accepts more models than a request has alternatives.
    pub(crate) const fn remedy_for_number(self) -> &'static str {
        match self {
            Self::File => {
                "shorten the list of models (--models), or name types in nvidia.com/use-gputype"
            }
            Self::Cluster => {
                "name types in the annotation nvidia.com/use-gputype, or write MiB instead of a part"
            }
        }
    }

    /// Why a part of a GPU's memory has no model, and what to do.
    pub(crate) const fn no_model(self, is_none_known: bool) -> (&'static str, &'static str) {
        match (self, is_none_known) {
            (Self::File, true) => (
                "a claim asks for an amount of memory, and no GPU model is known",
                "give the cluster's GPU models with their memory (--models), or write MiB",
            ),
            (Self::File, false) => (
                "a claim asks for an amount of memory, and the pod accepts no GPU model of the list",
                "give the cluster's GPU models with their memory (--models), or write MiB",
            ),
            (Self::Cluster, true) => (
                "a claim asks for an amount of memory, and no ResourceSlice has a GPU",
                "see with `octavo doctor` why no node offers one, or write MiB instead of a part",
            ),
            (Self::Cluster, false) => (
                "a claim asks for an amount of memory, and the pod accepts no GPU model of the cluster",
                "name other types, or write MiB instead of a part",
            ),
        }
    }
}

/// A list of GPU models that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelsError {
    /// The text is no list of models.
    #[error("the list of GPU models is not valid: {0}")]
    Parse(String),
    /// An amount of memory is no quantity, or less than a MiB.
    #[error(
        "memory {memory:?} of the GPU model {product_name:?} is not a quantity of at least 1Mi"
    )]
    Memory {
        /// The model.
        product_name: String,
        /// The amount as written.
        memory: String,
    },
    /// A model has two amounts of memory.
    #[error(
        "the GPU model {product_name:?} has {first}Mi and {second}Mi; keep one of them, the smaller one fits both"
    )]
    Ambiguous {
        /// The model.
        product_name: String,
        /// One amount, in MiB.
        first: u64,
        /// The other one, in MiB.
        second: u64,
    },
    /// A model has no name.
    #[error("a GPU model has an empty productName")]
    Unnamed,
}

/// A model as written in a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    product_name: String,
    memory: String,
}

impl GpuModel {
    /// A model by its name and its memory, a quantity of bytes such as `81559Mi`, rounded down to a MiB.
    pub fn parse(product_name: &str, memory: &str) -> Result<Self, ModelsError> {
        let bytes = memory.parse::<Quantity>().ok().map(|amount| amount.nanos() / 1_000_000_000);
        let mib = bytes.and_then(|bytes| u64::try_from(bytes / MIB).ok());
        let (product_name, memory) = (product_name.to_owned(), memory.to_owned());
        match mib.filter(|mib| *mib > 0) {
            Some(memory_mib) => Ok(Self { product_name, memory_mib }),
            None => Err(ModelsError::Memory { product_name, memory }),
        }
    }
}

impl Models {
    /// A list of models. Equal entries count once.
    pub fn new(models: impl IntoIterator<Item = GpuModel>) -> Result<Self, ModelsError> {
        let mut known: Vec<GpuModel> = Vec::new();
        for model in models {
            if model.product_name.is_empty() {
                return Err(ModelsError::Unnamed);
            }
            match known.iter().find(|found| found.product_name == model.product_name) {
                None => known.push(model),
                Some(found) if found.memory_mib == model.memory_mib => {}
                Some(found) => {
                    return Err(ModelsError::Ambiguous {
                        product_name: model.product_name,
                        first: found.memory_mib,
                        second: model.memory_mib,
                    });
                }
            }
        }
        Ok(Self(known))
    }

    /// Reads a list in YAML or JSON: objects with `productName` and `memory`, a quantity such as `81559Mi`.
    pub fn parse(text: &str) -> Result<Self, ModelsError> {
        let written: Vec<Written> =
            serde_saphyr::from_str(text).map_err(|error| ModelsError::Parse(error.to_string()))?;
        let model = |written: Written| GpuModel::parse(&written.product_name, &written.memory);
        Self::new(written.into_iter().map(model).collect::<Result<Vec<_>, _>>()?)
    }

    /// The models.
    pub fn as_slice(&self) -> &[GpuModel] {
        &self.0
    }
}
