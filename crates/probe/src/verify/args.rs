//! The command line of `octavo probe verify`.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::OutputFormat;

/// Arguments of `octavo probe verify`.
#[derive(Clone, Debug, clap::Args)]
pub struct VerifyArgs {
    /// Only these GPUs, by UUID or by their number in this container; all that the process sees if absent
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    pub gpus: Vec<String>,

    /// Time for memory and computing together; all GPUs are tested at the same time. Peers, and a slow start of the driver, take longer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,

    /// Part of the free memory that is tested
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub memory: u8,

    /// Longest time of one kernel or copy. What takes longer hangs, and fails the test
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub deadline: u32,

    /// Root of the driver's files, if the dynamic linker does not find them
    #[arg(long, value_name = "FOLDER")]
    pub driver_root: Option<PathBuf>,

    /// The agent tests with it: the test ends with the agent, which judges the links of NVLink itself
    #[arg(long, hide = true)]
    pub of_agent: bool,

    /// Test in this process. The command starts itself with it
    #[arg(long, hide = true)]
    pub worker: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: OutputFormat,
}

impl VerifyArgs {
    pub(super) fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline.into())
    }
}
