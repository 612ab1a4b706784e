//! The command line of the probe.

use clap::ValueEnum;

/// Arguments of `octavo probe`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    /// Only this GPU, by its number in this container
    #[arg(long, value_name = "NUMBER")]
    pub gpu: Option<u32>,

    /// Only these ways to ask for memory; all if absent
    #[arg(long = "path", value_name = "NAME", value_delimiter = ',')]
    pub paths: Vec<String>,

    /// List the ways to ask for memory, and end
    #[arg(long, conflicts_with_all = ["gpu", "paths", "no_timing", "bypass", "hold"])]
    pub list: bool,

    /// Do not time launches and allocations
    #[arg(long)]
    pub no_timing: bool,

    /// At the end take all memory that is granted and hold it for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub hold: u32,

    /// At the end go round the wall: open the driver's own library, take memory beyond the limit and wait
    /// until somebody ends it, or for so many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    pub bypass: Option<u32>,

    /// OutputFormat of the output
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: OutputFormat,
}

/// OutputFormat of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for people
    #[default]
    Table,
    /// One JSON document
    Json,
}
