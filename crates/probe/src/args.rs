//! The command line of the probe.

use clap::ValueEnum;

use crate::verify::VerifyArgs;

/// Arguments of `octavo probe`.
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProbeArgs {
    /// Something else than a probe of limits
    #[command(subcommand)]
    pub command: Option<ProbeCommand>,

    /// Only this GPU, by its number in this container
    #[arg(long, value_name = "NUMBER")]
    pub gpu: Option<u32>,

    /// Only these allocation paths; the default ones if absent
    #[arg(long = "path", value_name = "NAME", value_delimiter = ',')]
    pub paths: Vec<String>,

    /// List the allocation paths, and exit
    #[arg(long, conflicts_with_all = ["gpu", "paths", "no_timing", "bypass", "hold"])]
    pub list: bool,

    /// Show the GPUs that this process sees, and exit
    #[arg(long, conflicts_with_all = ["paths", "no_timing", "bypass", "hold", "list"])]
    pub seen: bool,

    /// Write data to the memory of each GPU, read it again, compare it, and exit
    #[arg(long, conflicts_with_all = ["paths", "no_timing", "bypass", "hold", "list", "seen", "fabric"])]
    pub round_trip: bool,

    /// Keep one GPU busy with equal kernels for SECONDS, print as JSON how many have ended, and exit. Run it in several containers
    /// at the same time to see how they share a GPU's time
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["paths", "no_timing", "bypass", "hold", "list", "seen", "round_trip", "fabric"])]
    pub busy: Option<u32>,

    /// Keep MIB mebibytes of one GPU with known contents, check them from time to time, and print each check as a line of JSON. Between
    /// two checks the process is idle: its memory may be lent to others
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..1 << 24),
        conflicts_with_all = ["paths", "no_timing", "bypass", "hold", "list", "seen", "round_trip", "busy", "fabric"])]
    pub keep: Option<u64>,

    /// With --keep: time between two checks
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "keep")]
    pub check_interval: u32,

    /// With --keep: exit after this number of further checks; without it, check until the process is ended
    #[arg(long, value_name = "NUMBER", requires = "keep")]
    pub checks: Option<u64>,

    /// As a rank of an MPI job: give all other ranks memory of a GPU over the NVLink fabric, and check every byte of theirs
    #[arg(long, conflicts_with_all = ["gpu", "paths", "no_timing", "bypass", "list", "seen"])]
    pub fabric: bool,

    /// Do not time launches and allocations
    #[arg(long)]
    pub no_timing: bool,

    /// At the end, allocate all memory up to the limit and hold it for SECONDS; with --fabric, repeat for SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub hold: u32,

    /// At the end, bypass the guard: allocate beyond the limit with a copy of the driver's own
    /// library, and wait to be stopped, at most for SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    pub bypass: Option<u32>,

    /// Limit of a GPU that the bypass exceeds. The probe gives it to itself: a process loads one driver library only
    #[arg(long, hide = true, requires = "bypass", value_name = "GPU=BYTES", value_parser = limit)]
    pub limits: Vec<(i32, u64)>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: OutputFormat,
}

fn limit(text: &str) -> Result<(i32, u64), String> {
    let parsed = text
        .split_once('=')
        .and_then(|(gpu, bytes)| Some((gpu.parse().ok()?, bytes.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not GPU=BYTES"))
}

/// Commands of `octavo probe`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ProbeCommand {
    /// Test GPUs before they return to service: what the driver says, memory, computing, and copies between them
    #[command(after_help = "\
It needs GPUs that nothing else uses. Per GPU:
  facts    the driver advises nothing, no row remap is pending or has failed, the NVLink links are active
  memory   most of the free memory is filled with patterns, then read again by the GPU
  compute  every multiprocessor multiplies matrices, and compares with products of the host's processor
  peers    with several GPUs: memory is copied to each other GPU and back

Rates are reported and judge nothing. Work that does not end within its deadline fails the test.

Exit codes: 0 all GPUs passed, 1 a GPU has a fault, 3 something could not be tried, so nothing is known.

Examples:
  octavo probe verify                              all GPUs of this container, for a minute
  octavo probe verify --gpus 0,3 --seconds 600     two of them, for ten minutes
  octavo probe verify --gpus GPU-1878e889-60c4-8b20-3483-9f2ad4324d35 -o json")]
    Verify(VerifyArgs),
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for people
    #[default]
    Table,
    /// One JSON document
    Json,
}
