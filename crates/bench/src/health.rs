//! From the failure of a GPU to its taint, 200 nodes whose GPUs fail at once, and the controller's memory on 12,500 nodes.
//!
//! Faults are written into the state of simulated machines, as `octavo lab gpu NODE GPU fail` does. Times are those at which a watch of
//! the benchmark sees what was written.

mod burst;
mod memory;
mod observer;
mod taint;

use std::path::Path;

use clap::ValueEnum;
use octavo_figure::{Figure, Goal, percentile};
use octavo_lab::Layout;
use octavo_machine::{Event, EventKind, Machine, MachineError, RecoveryAction};

/// XIDs that call for a reset. The first one is an uncontained memory error.
const XIDS: [u64; 10] = [95, 46, 48, 62, 109, 119, 120, 136, 140, 143];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From the failure of a GPU to its taint.
    Taint,
    /// 200 nodes whose GPUs fail at once.
    Burst,
    /// The controller's memory.
    Memory,
}

/// Arguments of this benchmark.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Health")]
#[group(id = "health_options")]
pub(crate) struct Options {
    /// health: only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PART,...")]
    parts: Vec<Part>,
}

/// Measures what is asked for.
pub(crate) async fn run(octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let is_asked_for = |part: Part| options.parts.is_empty() || options.parts.contains(&part);
    let mut figures = Vec::new();
    if is_asked_for(Part::Taint) {
        figures.extend(Box::pin(taint::run(octavo)).await?);
    }
    if is_asked_for(Part::Burst) {
        figures.extend(Box::pin(burst::run(octavo)).await?);
    }
    if is_asked_for(Part::Memory) {
        figures.extend(Box::pin(memory::run(octavo)).await?);
    }
    Ok(figures)
}

/// A simulated machine.
struct Simulated {
    folder: std::path::PathBuf,
    machine: Machine,
}

impl Simulated {
    fn of(layout: &Layout, node: &str) -> anyhow::Result<Self> {
        // Where the lab has the simulated driver of a node.
        let folder = layout.node(node).join("driver/usr/lib64");
        let machine = Machine::read(&folder.join("machine.yaml"))?;
        Ok(Self { folder, machine })
    }

    /// Makes a GPU fail: the driver reports an XID and advises a reset.
    fn fail(&self, gpu: u32, xid: u64) -> anyhow::Result<()> {
        octavo_machine::change(&self.folder, &self.machine, |state| {
            state.gpus.entry(gpu).or_default().recovery_action = RecoveryAction::GpuReset;
            let event = Event {
                gpu,
                kind: EventKind::Xid,
                data: xid,
                gpu_instance: None,
                compute_instance: None,
            };
            state.events.push(event);
            Ok::<_, MachineError>(())
        })?;
        Ok(())
    }

    /// Has the driver report events almost at once, as a real one does.
    fn report_at_once(&self) -> anyhow::Result<()> {
        octavo_machine::change(&self.folder, &self.machine, |state| {
            state.event_look_millis = Some(1);
            Ok::<_, MachineError>(())
        })?;
        Ok(())
    }

    /// Ends all faults.
    fn heal(&self) -> anyhow::Result<()> {
        octavo_machine::change(&self.folder, &self.machine, |state| {
            state.gpus.clear();
            Ok::<_, MachineError>(())
        })?;
        Ok(())
    }
}

/// The median and the 99th percentile of samples, each with its goal.
fn quantiles(
    what: &str,
    unit: &'static str,
    samples: &[f64],
    goals: [Goal; 2],
) -> anyhow::Result<[Figure; 2]> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let p99 = percentile(&sorted, 99.0).unwrap_or(f64::NAN);
    let [p50_goal, p99_goal] = goals;
    Ok([
        Figure::new(format!("{what}, p50"), unit, samples, p50_goal)?,
        Figure::new(format!("{what}, p99"), unit, &[p99], p99_goal)?,
    ])
}
