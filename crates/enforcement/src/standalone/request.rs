//! What a share asks for, in a file of its run root. The command that serves all shares of the machine reads it.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use octavo_api::config::{ComputePart, OverflowPolicy, ShareClass, Strictness, SwapUnit};
use octavo_dra::Quantity;
use octavo_guard_abi::uuid;
use octavo_node::ClaimRef;
use octavo_node::files::write_atomically;
use serde::{Deserialize, Serialize};

use super::RunArgs;
use crate::backend::BackendKind;
use crate::share::{ActiveShare, generation, share_folder};

/// Its file in a share's run root.
const FILE: &str = "request.json";

/// What a share asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShareRequest {
    /// Its name.
    pub(super) name: String,
    /// Its number among those of that name: that of the GPU.
    pub(super) share_id: String,
    /// Its folder on the host.
    pub(super) folder: PathBuf,
    /// UUID of the GPU.
    pub(super) gpu: String,
    /// Minor number of the GPU.
    pub(super) minor: u32,
    /// Memory that it has whenever it wants, in bytes.
    pub(super) memory: u64,
    /// Memory that it may have, in bytes.
    pub(super) memory_limit: u64,
    /// Memory of the host that swapped processes of all shares may take together, in bytes.
    #[serde(default)]
    pub(super) swap_host_memory: Option<u64>,
    /// The writing of its files.
    pub(super) generation: u64,
    is_strict: bool,
    /// Thousandths of a percent.
    pub(super) compute: u32,
    compute_limit: Option<u32>,
    class: ShareClass,
}

/// Reads a class by its name on the command line.
pub(super) fn class(text: &str) -> Result<ShareClass, String> {
    match text {
        "latency-critical" => Ok(ShareClass::LatencyCritical),
        "normal" => Ok(ShareClass::Normal),
        "best-effort" => Ok(ShareClass::BestEffort),
        _ => Err(format!("{text:?} is not one of latency-critical, normal, best-effort")),
    }
}

impl ShareRequest {
    /// What a command asks for, for the share with this run root. The GPU has a UUID, a minor number, and so much memory.
    pub(super) fn new(
        args: &RunArgs,
        name: &str,
        root: &Path,
        (gpu, minor, gpu_bytes): (&str, u32, u64),
    ) -> anyhow::Result<Self> {
        let bytes = |quantity: &Quantity| u64::try_from(quantity.value()).ok();
        let memory = bytes(&args.memory).filter(|bytes| *bytes > 0);
        let memory = memory.context("the memory of a share is at least a byte")?;
        let memory_limit = args.memory_limit.as_ref().map_or(Some(memory), bytes);
        let memory_limit = memory_limit.filter(|limit| *limit >= memory).context(
            "--memory-limit is less than --memory: the share would never have what it asks for",
        )?;
        ensure!(
            memory_limit <= gpu_bytes,
            "the GPU has {} MiB, which is less than the share is to have",
            gpu_bytes >> 20
        );
        let swap_host_memory = args.swap_host_memory.as_ref().map(|quantity| {
            bytes(quantity)
                .filter(|bytes| *bytes > 0)
                .context("--swap-host-memory is at least a byte")
        });
        ensure!(
            args.compute_limit != Some(ComputePart(0)),
            "--compute-limit is 0: no program of the share would ever launch"
        );
        ensure!(
            args.compute_limit.is_none_or(|limit| Some(limit) >= args.compute),
            "--compute-limit is less than --compute: the share would never have what it asks for"
        );
        ensure!(uuid::parse(gpu).is_some(), "the GPU's UUID is not in its usual form");
        let share_id = args.gpu.to_string();
        let folder = share_folder(name, &share_id).on_host(root);
        let generation = generation(&folder);
        let new_generation = || RandomState::new().hash_one(name).max(1);
        Ok(Self {
            name: name.to_owned(),
            share_id,
            gpu: gpu.to_owned(),
            minor,
            memory,
            memory_limit,
            swap_host_memory: swap_host_memory.transpose()?,
            generation: generation.unwrap_or_else(new_generation),
            is_strict: args.strict,
            compute: args.compute.map_or(0, |part| part.0),
            compute_limit: args.compute_limit.map(|part| part.0),
            class: args.class,
            folder,
        })
    }

    /// Takes over what an earlier command of the share asked for, where this one asks for nothing.
    pub(super) fn join(&mut self, earlier: &Self) {
        let time = (self.compute, self.compute_limit, self.class);
        if time == (0, None, ShareClass::default()) {
            (self.compute, self.compute_limit, self.class) =
                (earlier.compute, earlier.compute_limit, earlier.class);
        }
        if self.memory_limit == self.memory && earlier.is_elastic() {
            self.memory_limit = self.memory.max(earlier.memory_limit);
        }
        self.swap_host_memory = self.swap_host_memory.or(earlier.swap_host_memory);
    }

    /// Why others and this one may not have what they ask for together, if their GPU, of so many bytes, is too small.
    pub(super) fn excess<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
        gpu_bytes: u64,
    ) -> Option<String> {
        let others = others.into_iter().filter(|other| other.gpu == self.gpu);
        let all = others.map(|other| other.memory).fold(self.memory, u64::saturating_add);
        (all > gpu_bytes).then(|| {
            format!(
                "the shares of GPU {} ask for {} MiB together, and it has {} MiB: an allocation \
                 within a share may fail",
                self.share_id,
                all >> 20,
                gpu_bytes >> 20
            )
        })
    }

    /// Writes it to the share's run root.
    pub(super) fn write(&self, root: &Path) -> anyhow::Result<()> {
        Ok(write_atomically(&root.join(FILE), &serde_json::to_vec(self)?, false)?)
    }

    /// That of a share's run root; `None` while its command makes it.
    pub(super) fn read(root: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(root.join(FILE)).ok()?).ok()
    }

    /// Whether it may have more memory than it asks for, while others leave it.
    pub(super) fn is_elastic(&self) -> bool {
        self.memory < self.memory_limit
    }

    /// Name of its device, as on a node.
    pub(super) fn device(&self) -> String {
        format!("gpu-{}", self.minor)
    }

    /// The claim that would hold it.
    pub(super) fn claim(&self) -> ClaimRef {
        let Self { name, .. } = self;
        ClaimRef { namespace: String::new(), name: name.clone(), uid: name.clone() }
    }

    /// Action on driver functions unknown to the guard.
    pub(super) fn strictness(&self) -> Strictness {
        if self.is_strict { Strictness::Strict } else { Strictness::default() }
    }

    /// The share as the watchdog of a node knows it.
    pub(super) fn active(&self) -> ActiveShare {
        ActiveShare {
            claim: self.claim(),
            pool: String::new(),
            device: self.device(),
            share_id: self.share_id.clone(),
            gpu_uuid: self.gpu.clone(),
            folder: self.folder.clone(),
            memory_bytes: self.memory_limit,
            memory_request: self.memory,
            swap_unit: SwapUnit::default(),
            compute_milli_percent: self.compute,
            compute_limit: self.compute_limit,
            quantum_ms: None,
            overflow: OverflowPolicy::Report,
            strictness: self.strictness(),
            class: self.class,
            backend: Some(BackendKind::Guard),
            generation: self.generation,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
