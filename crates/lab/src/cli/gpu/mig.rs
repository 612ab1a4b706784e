//! `octavo lab gpu NODE INDEX mig`: MIG instances created, used and destroyed without the agent.

use std::fmt::Write as _;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use octavo_machine::{
    GpuInstance, Machine, Mig, MigActivation, MigProfile, MigRefusal, MigTable, State, mig_uuid,
};
use serde::Serialize;

use super::ActionResult;
use crate::cli::args::OutputForm;

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct MigArgs {
    #[command(subcommand)]
    action: MigAction,
}

#[derive(Clone, Debug, PartialEq, Subcommand)]
enum MigAction {
    /// Turn the mode on or off, as nvidia-smi would.
    Mode {
        /// The mode
        #[arg(value_enum)]
        mode: Switch,
    },
    /// Create an instance, as nvidia-smi would.
    Create {
        /// Name of the profile, and the first memory slice unless the driver may choose it, such as
        /// 1g.10gb@6
        #[arg(value_name = "PROFILE[@START]")]
        placement: Placement,
        /// Create the GPU instance without a compute instance, as a crash leaves it
        #[arg(long)]
        bare: bool,
    },
    /// Destroy an instance and its contents, as nvidia-smi would.
    Destroy {
        /// Id of the GPU instance
        #[arg(value_name = "ID")]
        instance: u32,
    },
    /// Set whether processes use an instance. An instance in use cannot be destroyed.
    Busy {
        /// Id of the GPU instance
        #[arg(value_name = "ID")]
        instance: u32,
        /// Whether processes use it
        #[arg(value_enum)]
        busy: Switch,
    },
    /// List the instances.
    List {
        /// Form of the output
        #[arg(long, short, value_enum, default_value_t = OutputForm::Table)]
        output: OutputForm,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A profile and its first memory slice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placement {
    profile: String,
    start: Option<u32>,
}

/// A GPU's MIG mode and instances in printed form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing {
    enabled: bool,
    pending: bool,
    instances: Vec<ListedInstance>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedInstance {
    gpu_instance: u32,
    profile: String,
    start: u32,
    size: u32,
    compute_instances: Vec<ListedCompute>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedCompute {
    id: u32,
    uuid: String,
    processes: u32,
}

pub(super) fn apply(
    machine: &Machine,
    state: &mut State,
    index: u32,
    args: &MigArgs,
) -> anyhow::Result<ActionResult> {
    let model = machine.model.mig.as_ref();
    let model = model.with_context(|| format!("a {} has no MIG mode", machine.model.name))?;
    let table = MigTable::find(&model.table).context("the machine names no known MIG profiles")?;
    let gpu = state.gpus.entry(index).or_default();
    let done = match &args.action {
        MigAction::Mode { mode } => {
            let is_on = *mode == Switch::On;
            let became = gpu.set_mig_mode(model, is_on, false);
            let word = if is_on { "on" } else { "off" };
            match became.with_context(|| format!("turn the MIG mode {word}"))? {
                MigActivation::Done => format!("has its MIG mode {word}"),
                MigActivation::ResetRequired => {
                    format!("will have its MIG mode {word} after a reset")
                }
                MigActivation::InUse => {
                    format!("is in use: it will have its MIG mode {word} after a reset")
                }
            }
        }
        MigAction::Create { placement, bare } => {
            let profile = profile_named(&table, &placement.profile)?;
            let made = gpu.mig.create(model, &table, profile.id, placement.start);
            let id = made.with_context(|| format!("make a {}", placement.profile))?;
            if !bare {
                // The last profile fills the GPU instance.
                let whole = profile.compute_profiles().pop().map_or(0, |whole| whole.number);
                gpu.mig.create_compute(&table, id, whole, None)?;
            }
            format!("has the GPU instance {id}")
        }
        MigAction::Destroy { instance } => {
            let inner = find(gpu.mig.instances.get_mut(instance), *instance)?;
            if inner.compute_instances.values().any(|inner| inner.processes > 0) {
                return Err(MigRefusal::InUse).with_context(|| format!("destroy {instance}"));
            }
            inner.compute_instances.clear();
            gpu.mig.destroy(*instance)?;
            format!("no longer has the GPU instance {instance}")
        }
        MigAction::Busy { instance, busy } => {
            let inner = find(gpu.mig.instances.get_mut(instance), *instance)?;
            if inner.compute_instances.is_empty() {
                bail!("no process can use GPU instance {instance}: it has no compute instance");
            }
            for inner in inner.compute_instances.values_mut() {
                inner.processes = u32::from(*busy == Switch::On);
            }
            let word = if *busy == Switch::On { "in use" } else { "not in use" };
            format!("has its GPU instance {instance} {word}")
        }
        MigAction::List { output } => {
            let listing = list(machine, model, &table, state, index);
            return Ok(ActionResult::Report(print(&listing, *output)?));
        }
    };
    Ok(ActionResult::Changed(done))
}

fn profile_named<'a>(table: &'a MigTable, name: &str) -> anyhow::Result<&'a MigProfile> {
    table.profile_named(name).with_context(|| {
        let names: Vec<&str> = table.profiles.iter().map(|profile| profile.name).collect();
        format!("the GPU has no profile {name}: name one of {}", names.join(", "))
    })
}

fn find(instance: Option<&mut GpuInstance>, id: u32) -> anyhow::Result<&mut GpuInstance> {
    instance.with_context(|| {
        format!("the GPU has no GPU instance {id}: `octavo lab gpu NODE INDEX mig list` lists them")
    })
}

fn list(machine: &Machine, model: &Mig, table: &MigTable, state: &State, index: u32) -> Listing {
    let uuid = usize::try_from(index).ok().and_then(|index| machine.gpus.get(index)?.uuid.clone());
    let uuid = uuid.unwrap_or_default();
    let mig = state.gpus.get(&index).map(|gpu| gpu.mig.clone()).unwrap_or_default();
    let compute = |outer: u32, instance: &GpuInstance| {
        let inner = instance.compute_instances.iter();
        inner
            .map(|(&id, inner)| ListedCompute {
                id,
                uuid: mig_uuid(&uuid, outer, id),
                processes: inner.processes,
            })
            .collect()
    };
    let mut instances: Vec<ListedInstance> = mig
        .instances
        .iter()
        .map(|(&id, instance)| {
            let profile = table.profile(instance.profile);
            ListedInstance {
                gpu_instance: id,
                profile: profile.map_or("?", |profile| profile.name).to_owned(),
                start: instance.start,
                size: profile.map_or(0, |profile| profile.memory_slices),
                compute_instances: compute(id, instance),
            }
        })
        .collect();
    instances.sort_by_key(|instance| instance.start);
    Listing { enabled: mig.is_enabled(model), pending: mig.is_pending(model), instances }
}

fn print(listing: &Listing, output: OutputForm) -> anyhow::Result<String> {
    Ok(match output {
        OutputForm::Json => serde_json::to_string_pretty(listing)? + "\n",
        OutputForm::Yaml => serde_saphyr::to_string(listing)?,
        OutputForm::Table => table_of(listing),
    })
}

fn table_of(listing: &Listing) -> String {
    let word = |is_on| if is_on { "on" } else { "off" };
    let mut text = format!("MIG mode {}", word(listing.enabled));
    // Writing to a string cannot fail.
    if listing.pending != listing.enabled {
        let _ = write!(text, ", {} after a reset", word(listing.pending));
    }
    text.push('\n');
    for instance in &listing.instances {
        let ListedInstance { gpu_instance, profile, start, size, .. } = instance;
        let _ = write!(text, "GPU instance {gpu_instance:2}  {profile:11} {start}:{size}");
        for inner in &instance.compute_instances {
            let busy = if inner.processes > 0 { " in use" } else { "" };
            let _ = write!(text, "  {}{busy}", inner.uuid);
        }
        text.push('\n');
    }
    text
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((profile, start)) = text.split_once('@') else {
            return Ok(Self { profile: text.to_owned(), start: None });
        };
        let start = start.parse().map_err(|_| {
            format!(
                "`{start}` is not the number of a memory \
                                                       slice"
            )
        })?;
        Ok(Self { profile: profile.to_owned(), start: Some(start) })
    }
}

#[cfg(test)]
mod tests;
