//! Notes for administrators about offered and withheld GPUs.

use octavo_gpu::Gpu;

use super::offer::{self, Offer};
use super::{Node, device_name};
use crate::config::DynamicMig;

/// A note, valid as long as its condition holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Constant in `CamelCase`.
    pub reason: &'static str,
    /// A sentence: what happened, why, and what to do.
    pub text: String,
}

/// The notes about a node, sorted.
pub fn notes(node: &Node<'_>) -> Vec<Note> {
    let mut notes: Vec<_> = node.inventory.gpus.iter().flat_map(|gpu| of_gpu(node, gpu)).collect();
    if let DynamicMig::Gpus(names) = node.dynamic {
        for name in names {
            let gpu = node.inventory.gpus.iter().find(|gpu| name.is(gpu));
            let why = match gpu {
                None => "the node has no such GPU",
                Some(gpu) if !offer::supports_mig(gpu) => "it has no MIG",
                Some(_) => continue,
            };
            let text = format!(
                "{name} is named for dynamic MIG but {why}; take it out of the setting \
                 `dynamicMig` or of the node's label"
            );
            notes.push(Note { reason: "DynamicMigUnavailable", text });
        }
    }
    notes.sort();
    notes.dedup();
    notes
}

fn of_gpu(node: &Node<'_>, gpu: &Gpu) -> Vec<Note> {
    let (name, uuid) = (device_name(gpu), &gpu.uuid);
    let mut notes = Vec::new();
    let mut note = |reason, text| notes.push(Note { reason, text });
    let offer = Offer::of(node, gpu);
    match offer {
        Offer::Whole if node.dynamic.has(gpu) && offer::supports_mig(gpu) => note(
            "DynamicMigNeedsReset",
            format!(
                "{name} ({uuid}) is opted into dynamic MIG but its MIG mode is off, and on this GPU \
                 the mode changes with a reset only; until then it is offered whole. To have it cut, \
                 drain the node, run `octavo driver release` for it, `nvidia-smi -i {} -mig 1`, reset \
                 the GPU, and run `octavo driver resume`",
                gpu.pci
            ),
        ),
        Offer::Instances => {
            let is_offered = |instance: &&octavo_gpu::mig::MigInstance| {
                instance.compute_instances.len() == 1 && offer::profile_of(gpu, instance).is_some()
            };
            if gpu.mig_instances.iter().filter(is_offered).count() == 0 {
                note(
                    "GpuInMigMode",
                    format!(
                        "{name} ({uuid}) is in MIG mode without an instance that could be offered, so \
                         nothing of it is; make instances with `nvidia-smi mig -cgi <profile> -C`, opt \
                         it into dynamic MIG, or turn the mode off to offer it whole"
                    ),
                );
            }
            for instance in &gpu.mig_instances {
                let (id, parts) = (instance.gpu_instance, instance.compute_instances.len());
                if parts > 1 {
                    note(
                        "MigInstanceNotOffered",
                        format!(
                            "MIG instance {id} of {name} ({uuid}) is cut into {parts} compute \
                             instances and not offered: only instances that one compute instance \
                             fills are"
                        ),
                    );
                }
            }
        }
        Offer::WholeOrMig | Offer::DynamicMig => {
            let found: Vec<_> = offer::foreign(node, gpu).collect();
            if !found.is_empty() {
                let ids: Vec<_> = found.iter().map(|one| one.gpu_instance.to_string()).collect();
                note(
                    "ForeignMigInstance",
                    format!(
                        "{name} ({uuid}) is opted into dynamic MIG and has GPU instances that Octavo \
                         did not make: {}. They are left alone until an agent starts, which destroys \
                         those that nobody uses, and what overlaps them is not given to claims; destroy them with `nvidia-smi mig -dci` and `-dgi`, or opt the \
                         GPU out to offer them",
                        ids.join(", ")
                    ),
                );
            }
        }
        Offer::Whole | Offer::Nothing => {}
    }
    notes
}
