//! Explanations as lines of plain English.

use super::dto::{
    Explanation, GpuAllocation, MemberPlacement, NodePlacement, PlanSummary, RefusalSummary,
    RunnerUpSummary,
};
use super::words::amount;
use crate::objective::Amount;
use crate::plan::Remedy;

/// Placements listed one by one; the rest are counted.
const MAX_NAMED: usize = 8;

impl Explanation {
    /// The decision in the first line, its reasons in the others.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Placed(plan) => plan.lines(),
            Self::Refused(refusal) => refusal.lines(),
        }
    }
}

impl PlanSummary {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.head()];
        for member in &self.evictions {
            lines.push(format!(
                "evicts {} rank {} from node {}",
                member.workload, member.rank, member.node
            ));
        }
        for step in &self.moves {
            let member = &step.member;
            lines.push(format!(
                "moves {} rank {} from node {} to {}",
                member.workload,
                member.rank,
                member.node,
                place(&step.to)
            ));
        }
        if self.placements.len() > 1 {
            lines.extend(runs(&self.placements));
        }
        lines.push(format!("policy {}: {}", self.policy, self.order));
        lines.push(format!("costs {}", amounts(&self.cost)));
        lines.push(match &self.runner_up {
            Some(other) => other.line(&self.cost),
            None => "there was no other plan".to_owned(),
        });
        lines
    }

    fn head(&self) -> String {
        match self.placements.as_slice() {
            [] => format!("{}: nothing is to be placed", self.request),
            [placed] => format!("{} goes to {}", self.request, place(&placed.place)),
            several => {
                let nodes: std::collections::BTreeSet<_> =
                    several.iter().map(|placed| &placed.place.node).collect();
                let (pods, nodes) = (several.len(), nodes.len());
                format!("{}: {pods} pods go to {}", self.request, count(nodes, "node"))
            }
        }
    }
}

impl RunnerUpSummary {
    fn line(&self, best: &[Amount]) -> String {
        let Some(unit) = self.worse_in else {
            return format!(
                "next best: {}, which is as good and comes later in the order of nodes",
                self.place
            );
        };
        let of = |amounts: &[Amount]| {
            amounts.iter().find(|cost| cost.unit == unit).map_or(0, |cost| cost.value)
        };
        format!(
            "next best: {}, which loses in {unit}: {} instead of {}",
            self.place,
            amount(unit, of(&self.cost)),
            amount(unit, of(best))
        )
    }
}

impl RefusalSummary {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} is not placed: {}", self.request, self.message)];
        lines.extend(self.remedy.as_ref().map(Remedy::line));
        lines
    }
}

impl Remedy {
    fn line(&self) -> String {
        let what = match self {
            Self::FewerMembers { group, fit } => {
                format!("ask for at most {fit} members of the group {group}")
            }
            Self::LooserLevel { level } if level == "cluster" => {
                "do without a level at which all members must lie together".to_owned()
            }
            Self::LooserLevel { level } => {
                format!("ask for all members in one {level}, and no tighter level")
            }
            Self::Moves { pods, cost } => {
                let pods = count(*pods as usize, "running pod");
                format!("move {pods}, at {}", amounts(cost))
            }
            Self::Evictions { pods, workloads } => {
                let pods = count(*pods as usize, "running pod");
                format!("evict {pods} of {}", some(workloads))
            }
            Self::MoreNodes { nodes, like } => {
                format!("add {}, like {like}", count(*nodes as usize, "node"))
            }
            Self::Constraint { unit, to } => format!("change the policy's limit of {unit} to {to}"),
        };
        format!("it would help to {what}")
    }
}

/// Contiguous ranks on one node share a line. The last line counts the ranks that are not listed.
fn runs(placements: &[MemberPlacement]) -> Vec<String> {
    let runs: Vec<&[MemberPlacement]> = placements
        .chunk_by(|placed, next| placed.group == next.group && placed.place.node == next.place.node)
        .collect();
    let line = |run: &&[MemberPlacement]| match run {
        [] => String::new(),
        [placed] => format!("{} rank {}: {}", placed.group, placed.rank, place(&placed.place)),
        [first, .., last] => {
            let gpus = run.iter().map(|placed| placed.place.gpus.len()).sum();
            let node = place(&NodePlacement { gpus: Vec::new(), ..first.place.clone() });
            let (group, from, to) = (&first.group, first.rank, last.rank);
            let gpus = if gpus == 0 { String::new() } else { format!(", {}", count(gpus, "GPU")) };
            format!("{group} ranks {from} to {to}: {node}{gpus}")
        }
    };
    let mut lines: Vec<_> = runs.iter().take(MAX_NAMED).map(line).collect();
    let rest: usize = runs.iter().skip(MAX_NAMED).map(|run| run.len()).sum();
    if rest > 0 {
        lines.push(format!("and {} more", count(rest, "pod")));
    }
    lines
}

fn place(place: &NodePlacement) -> String {
    let domain = place.domain.as_ref().map_or(String::new(), |domain| format!(" in {domain}"));
    let gpus: Vec<_> = place.gpus.iter().map(gpu).collect();
    let gpus = if gpus.is_empty() { String::new() } else { format!(", {}", gpus.join(" and ")) };
    format!("node {}{domain}{gpus}", place.node)
}

fn gpu(part: &GpuAllocation) -> String {
    let memory = match part.memory_mib {
        0 => String::new(),
        mib => format!(", {mib} MiB"),
    };
    match (part.slices.first(), part.milli) {
        (Some(first), _) => {
            let slices = part.slices.len();
            format!("GPU {} (MIG, {} from slice {first}{memory})", part.gpu, count(slices, "slice"))
        }
        (None, crate::gpu::WHOLE) => format!("GPU {}", part.gpu),
        (None, milli) => format!("GPU {} ({milli} of 1000{memory})", part.gpu),
    }
}

fn amounts(amounts: &[Amount]) -> String {
    let words: Vec<_> = amounts.iter().map(|cost| amount(cost.unit, cost.value)).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn some(names: &[String]) -> String {
    let named = names.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MAX_NAMED) {
        Some(more @ 1..) => format!("{named} and {more} more"),
        _ => named,
    }
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
