//! `octavo migrate`: what moving to Octavo will do, and manifests of other GPU schedulers for Octavo.
//!
//! It is part of this crate because it joins the translation with the machine descriptions that ship with the lab.

mod manifests;
mod plan;
#[cfg(test)]
mod tests;

use clap::{Args, Subcommand};

pub(crate) use manifests::{ManifestsArgs, run_manifests};
pub(crate) use plan::{PlanArgs, run_plan};

/// Arguments of `octavo migrate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MigrateArgs {
    /// What to migrate
    #[command(subcommand)]
    pub(crate) command: MigrateCommand,
}

/// Subcommands of `octavo migrate`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Say beforehand what moving a cluster's nodes to Octavo will do
    #[command(after_help = "\
It reads the cluster, and writes nothing: parts of NVIDIA's GPU Operator, device plugin, MIG manager and
DRA driver, of HAMi and of KAI Scheduler; what offers the GPUs of each node, and which pods have them;
config files, field by field; workloads with annotations of HAMi and KAI. Then it says what to do, in
order, and how to go back. docs/migration.md describes each part.

What you may not read is named, and the plan is then not complete.

Exit codes: 0 nothing stands in the way, 1 failed, 2 wrong usage, 3 something has to be done first: pods
must end, a config is not served, a workload is refused, or something could not be read.

Examples:
  octavo migrate plan
  octavo migrate plan --context production > plan.txt
  octavo migrate plan -o json | jq -r '.obstacles[]'    for programs; kind MigrationPlan")]
    Plan(PlanArgs),

    /// Translate manifests for HAMi or KAI Scheduler into manifests with claims
    #[command(after_help = "\
Pods, and pod templates of the usual workloads, get claims from ResourceClaimTemplates, which are
written before their first user. Documents without a change keep their text. Changed ones are
rewritten, without the comments inside. docs/migration.md says what becomes of each field.

Standard error has a line for each change and each refusal. If anything is refused, nothing is
written. With --keep-going the rest is written, and what is refused stays as it was.

A percentage or a fraction of a GPU's memory becomes an amount for each GPU model, and a pod gets the
first one of the list that is free. Without --models the list has the GPUs of Octavo's machine
descriptions, smallest memory first. A file has the models of the cluster, at most eight for a pod:
  - {productName: NVIDIA L4, memory: 23034Mi}
  - {productName: NVIDIA H100 80GB HBM3, memory: 81559Mi}
Where Octavo's agents run, this prints it:
  kubectl get resourceslices -o json | jq '[.items[].spec.devices[]?
    | select(.attributes.type.string == \"gpu\") | {productName: .attributes.productName.string,
      memory: .capacity.memory.value}] | unique'

Exit codes: 0 all is translated, 1 something is refused or failed, 2 wrong usage.

Examples:
  octavo migrate manifests train.yaml > octavo/train.yaml
  octavo migrate manifests --scheduler-name octavo --output octavo/ manifests/*.yaml
  helm template chart | octavo migrate manifests --models models.yaml - | kubectl apply -f -")]
    Manifests(ManifestsArgs),
}
