//! The command line.

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::discover::DiscoverArgs;
use crate::migrate::MigrateArgs;
use crate::snapshot::SnapshotArgs;
use octavo::logging::LogArgs;

/// The GPUs of a Kubernetes cluster as one pool
#[derive(Debug, Parser)]
#[command(name = "octavo", version = octavo::VERSION, propagate_version = false)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage, 3 what was asked about waits.
It is also a kubectl plugin: under the name `kubectl-octavo` on the PATH it is `kubectl octavo`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) program: Program,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    /// Show the cluster's GPUs and the pods that use them
    #[command(after_help = "\
Examples:
  octavo top                       nodes, GPUs, and the pods that use them
  octavo top dgx-h100-0 -o wide    one node, a line for each GPU with UUID, claim and taints
  octavo top -n team-a             GPUs that team-a uses
  octavo top --watch               repeated every 2 seconds
  octavo top --shares --watch      use and limits of each share, live
  octavo top -o json               for programs; apiVersion cli.octavo.dev/v1alpha1, kind Top or Shares")]
    Top(octavo_view::TopArgs),

    /// Show the state of a pod's claims and, if a pod, a gang or a ComputeDomain waits, the reason; the health of a GPU
    #[command(after_help = "\
For gangs, and for pods that do not use Kubernetes' own scheduler, Octavo's scheduler is also asked.
It says what the pod or gang waits for, what its placement costs, and which placement was second best.
If there is no placement, it says why and what would help.

The holder of the Lease octavo-system/octavo-scheduler is asked. Pods are reached through the API
server, which needs the rights to get pods/proxy and to create pods/portforward; a scheduler that is
no pod, at its own address.
--scheduler-lease names another Lease, --scheduler an address.

Selectors are shown as written and are not evaluated. If too few GPUs are free, the pod cannot run.
If enough are free, selectors may still exclude them.

A device is explained by what its agent knows of its health, as `octavo health describe` does.

A ComputeDomain is explained node by node: the first step that is missing, why, and what to do.
Its daemons are in the namespace of the Lease octavo-system/octavo-controller, or of the chart's
controller; --controller-lease names another Lease.

Exit code 3 means that the pod, the gang or the ComputeDomain waits.

Examples:
  octavo explain pod train -n team-a
  octavo explain pod/train -o wide    with a line for each GPU that it could use
  octavo explain pod/train -o yaml    for programs; kind PodExplanation
  octavo explain podgroup train       a gang: a PodGroup, or the JobSet, Job, ... that owns its pods
  octavo explain podgroup train --scheduler-lease team-a/octavo-scheduler
  octavo explain computedomain nvl -n team-a
  octavo explain computedomain/nvl -o json    for programs; kind ComputeDomainExplanation
  octavo explain device gpu-node-7/gpu-0      the health of a GPU; kind HealthDevice")]
    Explain(octavo_view::ExplainArgs),

    /// Find out what keeps GPUs from use, and what to do about it
    #[command(after_help = "\
Exit code 1 means that errors were found. Warnings alone are no failure.

Where a node has an NVLink clique, or the cluster has ComputeDomains, what these need is checked, too:
definitions, DeviceClasses, controller, channels, kubelets, drivers, network policies, NVIDIA's driver.

With --probe it needs the rights to make a namespace, claims and pods. Each pod runs the agent's
prepare, the CDI spec and its hook through the node's own container runtime, and starts CUDA.

Examples:
  octavo doctor                    the cluster, its nodes and their agents
  octavo doctor --probe            and a container with a GPU on each node
  octavo doctor gpu-node-7 --probe --probe-timeout 3m
  octavo doctor -o json            for programs; kind Doctor")]
    Doctor(octavo_view::DoctorArgs),

    /// Show which GPUs are not well, why, and what they need; fence, release and retire GPUs
    #[command(after_help = "\
The agent of each node writes what it knows of its GPUs into the node's NodeHealth. GPUs that are Healthy
are counted and not listed, unless --all is given. Exit code 0 means that it could be read, whatever it says.

Examples:
  octavo health                           GPUs that are not Healthy, and the sums of the cluster
  octavo health gpu-node-7 --all -o wide  one node, with UUIDs and risk
  octavo health --state Fenced,Retired
  octavo health --watch                   repeated every 2 seconds
  octavo health -o json                   for programs; kind Health
  octavo health describe gpu-node-7/gpu-0
  octavo health fence gpu-node-7 gpu-0 --reason 'fan is loud'")]
    Health(Box<octavo_view::HealthArgs>),

    /// Prove that nodes can serve GPUs: driver, container runtime, CUDA and the offer of GPUs
    #[command(after_help = "\
Each node has two Jobs, one after the other, which are removed at the end, also after Ctrl-C. The first
is privileged and checks the host's driver. The second has one GPU, by a claim or by nvidia.com/gpu, as
the node offers it, and checks what a pod gets. `octavo validate node --help` describes the components.
If no GPU is free, toolkit, cuda and plugin are not tried.

Status files such as driver-ready are written to /run/nvidia/validations on each node, as the validator
of NVIDIA's GPU Operator does; --no-status-files leaves them as they are.

It needs the rights to read nodes, ResourceSlices and DaemonSets, to make and delete Jobs and claims in
its namespace, and to read pods and events there.

Exit codes: 0 all components of all nodes are ready, 1 a component failed or the command did, 2 wrong
usage, 3 none failed, and one was not tried, such as for lack of a free GPU.

Examples:
  octavo validate                              all nodes with GPUs
  octavo validate gpu-7 gpu-8 --timeout 10m
  octavo validate -o json                      for programs; kind Validation
  octavo validate --runtime-class nvidia       where the device plugin's config asks for envvar")]
    Validate(Box<octavo_validate::ValidateArgs>),

    /// Install Octavo into a cluster, after a look at what is in the way
    #[command(after_help = "\
Helm writes the release, from the chart that this program carries. `helm upgrade` and `helm uninstall`
work on it, too. Before that the cluster is read. Nothing is written while
  - parts of NVIDIA's stack or of HAMi run on nodes of the agents and do the same work,
  - a CRD or a DeviceClass of the chart belongs to another release, or to a program such as Argo CD,
  - the cluster is older than Kubernetes 1.34, or does not serve resource.k8s.io/v1.
CRDs and DeviceClasses without a living owner, such as those that NVIDIA's charts leave, are taken over.

It needs helm 3.14 or later, the rights of a cluster administrator, and no Octavo in the cluster.

Exit codes: 0 installed and all pods are ready, 1 the command failed, 2 wrong usage, 3 something is in the
way, or pods are not ready in time.

Examples:
  octavo install --dry-run                     what is in the way, and all objects, without a change
  octavo install -f values.yaml
  octavo install --set agent.mode=device-plugin --set agent.nodeSelector.pool=gpu")]
    Install(Box<octavo_install::InstallArgs>),

    /// Upgrade Octavo in a cluster, with its definitions of custom resources
    #[command(after_help = "\
The values of the release stay, and the chart's own are those of the new version. The same looks as of
`octavo install` come first. Agents are replaced node by node, and running containers stay. Daemons of
MPS are not replaced, because their end ends their programs: delete their pods when nothing uses MPS.

Exit codes: 0 upgraded and all pods are ready, 1 the command failed, 2 wrong usage, 3 something is in the
way, or pods are not ready in time.

Examples:
  octavo upgrade --dry-run
  octavo upgrade --set agent.featureLabels=node
  octavo upgrade --reset-values -f values.yaml")]
    Upgrade(Box<octavo_install::UpgradeArgs>),

    /// Remove Octavo from a cluster and its nodes, once nothing uses its GPUs
    #[command(after_help = "\
Nothing is removed while pods have GPUs of the release's nodes, or ComputeDomains exist. Then the nodes
get the label octavo.dev/mode=none: agents withdraw what they offer, end MPS daemons, and remove their
files when they end. If one cannot, or on Ctrl-C, all nodes get their former modes back.

After helm has removed the release, labels of nodes, slices and leases are removed. Definitions of custom
resources are removed if there is no object of them. The namespace stays, and on nodes empty folders.

Exit codes: 0 uninstalled, 1 the command failed, 2 wrong usage, 3 something is in the way.

Examples:
  octavo uninstall --dry-run                   what is in the way
  octavo uninstall --timeout 30m               wait for the agents of all nodes
  octavo uninstall --skip-node gpu-7           a node whose agent does not answer; its files stay")]
    Uninstall(Box<octavo_install::UninstallArgs>),

    /// Let the agents of nodes release the driver, or use it again
    Driver(octavo_view::DriverArgs),

    /// Write the inputs of a live scheduler's decisions to a file for `octavo sim`
    #[command(after_help = "\
Without a gang or a pod, this writes the current cluster, for `octavo sim whatif --cluster FILE`.
With one, it writes the last decision on it and the cluster before, for `octavo sim verify FILE`.
It also runs the simulator on that input: exit code 1 if the simulator decides differently.

The scheduler keeps a limited number of decisions. In its config file, `records` is the limit for
gangs, and `podRecords` for pods without a gang (default 0).

The file has names, labels and devices of all nodes, and names, priorities and requests of all pods.

Examples:
  octavo snapshot -o cluster.json
  octavo snapshot --podgroup team-a/train -o decision.json && octavo sim verify decision.json
  octavo snapshot --scheduler 127.0.0.1:9477 | jq '.nodes | length'")]
    Snapshot(SnapshotArgs),

    /// Plan the move of a cluster to Octavo, and translate manifests for other GPU schedulers
    Migrate(MigrateArgs),

    /// Publish a node's GPUs and prepare them for containers
    Agent(Box<octavo_agent::AgentArgs>),

    /// Place pods, gangs and shares: allocate their claims and bind them
    #[command(after_help = "\
Pods ask for it with `schedulerName: octavo`. It assigns devices only on nodes with the label
octavo.dev/scheduler=octavo; other resources, on all nodes. Several may run: a lease selects one leader.

Examples:
  octavo scheduler                                  in a cluster, with the pod's service account
  octavo scheduler --kubeconfig admin.conf --config scheduler.yaml")]
    Scheduler(octavo_scheduler::SchedulerArgs),

    /// Keep ComputeDomains: their templates, daemons, node labels, indices and status
    #[command(after_help = "\
The config file names at least the image of the daemons. Several may run: a lease selects one leader.

Examples:
  octavo controller --config controller.yaml     in a cluster, with the pod's service account
  octavo controller --kubeconfig admin.conf --namespace octavo-system --config controller.yaml")]
    Controller(Box<octavo_controller::ControllerArgs>),

    /// Run nvidia-imex on a node of a compute domain
    #[command(name = "imex-daemon")]
    #[command(after_help = "\
Each node of a ComputeDomain has a pod with this program. The device daemon-0 of its claim brings
CLIQUE_ID, COMPUTE_DOMAIN_UUID and the driver's programs.

Examples:
  octavo imex-daemon run      supervise nvidia-imex; arguments come from the pod's environment
  octavo imex-daemon check    the pod's probe")]
    ImexDaemon(octavo_imex_daemon::ImexDaemonArgs),

    /// Run the daemons of NVIDIA's Multi-Process Service (MPS) on a node
    #[command(name = "mps-daemon")]
    #[command(after_help = "\
Each node whose GPUs are shared by MPS has a pod with this program. The node's agent says by files which
daemons there are. The end of this program ends them and all programs that use them.

Examples:
  octavo mps-daemon run                               run the daemons until a signal
  octavo mps-daemon run --driver-root /driver-root    with a driver that is mounted there
  octavo mps-daemon check --served                    the pod's probe")]
    MpsDaemon(octavo_mps_daemon::MpsDaemonArgs),

    /// Label this node where it has an NVIDIA GPU, for clusters without Node Feature Discovery
    #[command(after_help = "\
It looks for PCI devices of vendor 10de and class 0300 or 0302, and sets nvidia.com/gpu.present=true. When
the GPU is gone, it removes the label that it set. A label with another value stays. It needs the right to
patch nodes; the chart's discover.enabled runs it on all nodes.

Examples:
  octavo discover                                in a pod, with NODE_NAME and its service account
  octavo discover --node-name gpu-7 --kubeconfig admin.conf")]
    Discover(DiscoverArgs),

    /// Run a cluster on this machine: a real control plane, simulated GPU nodes
    Lab(Box<octavo_lab::LabArgs>),

    /// Replay traces of whole clusters and check what would fit, without a cluster
    Sim(Box<octavo_sim::cli::SimArgs>),

    /// Show the GPUs that this process sees, and test the limits of its shares
    #[command(after_help = "\
Asks for memory in every way that the CUDA driver has, up to the total that the GPU reports, and
beyond it. Exit code 1 means that one of the ways gets more than the total.

Examples:
  octavo probe                     all GPUs, all ways, and the cost of calls
  octavo probe --list              the ways, and the function of each
  octavo probe --path alloc,async  only these
  octavo probe verify              test GPUs before they return to service
  octavo probe --fabric            as a rank of an MPI job: check the memory between nodes
  octavo probe --bypass            take more than the share through the driver's own library, to
                                   test that the node's watchdog ends the process")]
    Probe(octavo_probe::ProbeArgs),

    /// Run commands within the limits of a share, on this machine and without a cluster
    Share(octavo_enforcement::standalone::ShareArgs),

    /// Print the completion script for a shell
    #[command(after_help = "\
Examples:
  octavo completion bash > /etc/bash_completion.d/octavo
  octavo completion zsh > \"${fpath[1]}/_octavo\"
  octavo completion fish > ~/.config/fish/completions/octavo.fish")]
    Completion {
        /// Shell
        shell: Shell,
    },

    /// Print the version
    Version {
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
        output: VersionForm,
    },

    /// Prepare a container's root; run by container runtimes through CDI specs
    #[command(name = "cdi-hook", hide = true)]
    CdiHook(octavo_hook::Args),

    /// Move the GPU memory of a process to the host, or back; run by agents. NVIDIA's program for it is cuda-checkpoint
    #[command(
        name = "process-checkpoint",
        hide = true,
        after_help = "\
Prints {\"pid\":N,\"state\":\"running|locked|checkpointed|failed\",\"milliseconds\":{\"lock\":N, ...}}.
An action begins at the state of the process, and does nothing if nothing is left to do.

Exit codes: 0 done, 1 failed and the process may be in any state, 2 wrong usage, 3 the driver has no
checkpoints (older than 570), 4 the driver refuses this process, 5 the GPU has too little memory to
restore it, 6 its work did not end in time, 7 no such process."
    )]
    ProcessCheckpoint(octavo_process_checkpoint::ProcessCheckpointArgs),

    /// Write files of the repository
    #[command(hide = true)]
    Generate {
        /// Which
        #[arg(value_enum)]
        what: Generated,
    },
}

/// Output format of the version.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum VersionForm {
    /// One line
    #[default]
    Text,
    /// JSON
    Json,
}

/// A file that is generated from the binary itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Generated {
    /// docs/reference/cli.md
    CliReference,
    /// docs/reference/reasons.md
    Reasons,
    /// docs/reference/agent-metrics.md
    AgentMetrics,
    /// docs/reference/controller-metrics.md
    ControllerMetrics,
    /// docs/reference/scheduler-metrics.md
    SchedulerMetrics,
}

/// Parses the process's arguments. Exits if they are wrong or ask for help.
pub(crate) fn parse() -> Cli {
    let name = std::env::args_os().next().unwrap_or_default();
    let matches = command(&name).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command line under the name of its start. kubectl starts a plugin as `kubectl-octavo`, and
/// its user typed `kubectl octavo`.
pub(crate) fn command(started_as: &OsStr) -> clap::Command {
    let name = Path::new(started_as).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    if name == "kubectl-octavo" {
        Cli::command().name("kubectl octavo").bin_name("kubectl octavo")
    } else {
        Cli::command().bin_name("octavo")
    }
}

#[cfg(test)]
mod tests;
