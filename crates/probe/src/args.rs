//! The command line of the probe.

use clap::ValueEnum;

/// Arguments of `octavo probe`.
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
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

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for people
    #[default]
    Table,
    /// One JSON document
    Json,
}
