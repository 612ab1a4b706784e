//! A gang from flags.

use octavo_engine::snapshot::{GangRecord, GroupRecord, ProfileRecord, SegmentRecord, ShapeRecord};
use octavo_engine::{GpuDemand, Resources};

use super::args::GangArgs;

/// Why flags make no gang.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InlineError {
    /// Parts of GPUs and MIG instances at once.
    #[error("--milli and --mig exclude each other: a GPU is shared or partitioned")]
    ShareAndMig,
    /// The flags give a part of a GPU, but not the number of GPUs.
    #[error("{flag} sets the part of a GPU; set the number of GPUs with --gpus N")]
    NoGpus {
        /// The flag.
        flag: &'static str,
    },
    /// The minimum is larger than the count.
    #[error("--min {min} is more than --count {count}")]
    MinAboveCount {
        /// Members wanted at least.
        min: u32,
        /// Members.
        count: u32,
    },
    /// Not a segment.
    #[error("`{0}` is not a segment; write members and level, such as 2@clique")]
    Segment(String),
}

/// The gang that flags describe, if they name one.
pub(super) fn gang(args: &GangArgs) -> Result<Option<GangRecord>, InlineError> {
    let Some(name) = &args.name else { return Ok(None) };
    if let Some(min) = args.min.filter(|min| *min > args.count) {
        return Err(InlineError::MinAboveCount { min, count: args.count });
    }
    let segment = args.segment.as_deref().map(segment).transpose()?;
    let shape = ShapeRecord {
        resources: Resources::of_pod(
            args.cpu.map_or(0, |cpu| cpu.0),
            args.memory.map_or(0, |memory| memory.0),
        ),
        gpus: gpus(args)?,
        models: args.models.clone(),
        ..ShapeRecord::default()
    };
    let group = GroupRecord {
        name: "members".to_owned(),
        shape,
        count: args.count,
        min: args.min.filter(|min| *min < args.count),
        segment,
        ..GroupRecord::default()
    };
    let profile = ProfileRecord {
        name: name.clone(),
        tenant: args.tenant.clone(),
        priority: args.priority,
        not_preemptible: false,
        not_movable: false,
        seconds_at_risk: args.seconds_at_risk,
        required: args.required.clone(),
        preferred: args.preferred.clone(),
    };
    Ok(Some(GangRecord { profile, groups: vec![group] }))
}

fn gpus(args: &GangArgs) -> Result<GpuDemand, InlineError> {
    let count = args.gpus.unwrap_or(0);
    let is_share = args.milli.is_some() || args.gpu_memory.is_some();
    if count == 0 {
        let flags = [
            ("--milli", args.milli.is_some()),
            ("--gpu-memory", is_share),
            ("--mig", args.mig.is_some()),
        ];
        return match flags.into_iter().find(|(_, is_there)| *is_there) {
            Some((flag, _)) => Err(InlineError::NoGpus { flag }),
            None => Ok(GpuDemand::None),
        };
    }
    match &args.mig {
        Some(_) if is_share => Err(InlineError::ShareAndMig),
        Some(profile) => Ok(GpuDemand::Mig { count, profile: profile.as_str().into() }),
        None if is_share => {
            let memory_mib = args.gpu_memory.map_or(0, |memory| memory.0);
            let memory_mib = u32::try_from(memory_mib).unwrap_or(u32::MAX);
            Ok(GpuDemand::Share { count, milli: args.milli.unwrap_or(0), memory_mib })
        }
        None => Ok(GpuDemand::Whole { count }),
    }
}

fn segment(text: &str) -> Result<SegmentRecord, InlineError> {
    let wrong = || InlineError::Segment(text.to_owned());
    let (size, level) = text.split_once('@').ok_or_else(wrong)?;
    let size = size.parse().ok().filter(|size| *size > 0).ok_or_else(wrong)?;
    if level.is_empty() {
        return Err(wrong());
    }
    Ok(SegmentRecord { size, level: level.to_owned() })
}
