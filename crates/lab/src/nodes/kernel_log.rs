//! The kernel's log of a simulated node: what the driver writes there of errors, as the agent reads it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;

/// XIDs of `NVLink`s, whose lines have a severity.
pub(crate) const LINK_XIDS: std::ops::RangeInclusive<u64> = 144..=150;
/// Address of the `NVSwitch` that fails.
const SWITCH: &str = "0000:c1:00.0";

/// What the driver says of an error of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LinkSeverity {
    /// The link goes on.
    Nonfatal,
    /// The link is lost.
    #[default]
    Fatal,
}

/// The log of the node in `folder`.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("kern.log")
}

/// Appends lines to the log of the node in `folder`. Without lines it exists afterwards.
pub(crate) fn append(folder: &Path, lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let text: String =
        lines.flat_map(|line| ["kernel: ".to_owned(), line, "\n".to_owned()]).collect();
    let path = path(folder);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    // One write, so that lines of several writers do not mix.
    log.and_then(|mut log| log.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

/// The line of an XID of the GPU at an address, such as `0000:3b:00.0`.
pub(crate) fn xid(pci: &str, number: u64, link: LinkSeverity) -> String {
    let address = pci.rsplit_once('.').map_or(pci, |(address, _)| address);
    let what = if LINK_XIDS.contains(&number) {
        let severity = match link {
            LinkSeverity::Nonfatal => "Nonfatal",
            LinkSeverity::Fatal => "Fatal",
        };
        format!("RLW_REMAP {severity} XC0 i0 Link 13 (0x00000004 0x80000001 0x00000000 0x00000000)")
    } else {
        "pid='<unknown>', name=<unknown>, simulated".to_owned()
    };
    format!("NVRM: Xid (PCI:{address}): {number}, {what}")
}

/// The line of a fatal error of an `NVSwitch`.
pub(crate) fn switch_xid(number: u64) -> String {
    format!("nvidia-nvswitch0: SXid (PCI:{SWITCH}): {number}, Fatal, Link 30 LTSSM Fault Up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_driver() {
        assert_eq!(
            xid("0000:3b:00.0", 79, LinkSeverity::Fatal),
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, simulated"
        );
        let line = xid("0000:3b:00.0", 145, LinkSeverity::Nonfatal);
        assert!(
            line.starts_with("NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 13 ")
        );
        assert_eq!(
            switch_xid(20034),
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
        );
    }

    #[test]
    fn the_log_grows_by_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        append(folder.path(), std::iter::empty()).unwrap();
        assert_eq!(std::fs::read_to_string(path(folder.path())).unwrap(), "");
        for number in [1, 2] {
            append(folder.path(), [format!("line {number}")].into_iter()).unwrap();
        }
        let text = std::fs::read_to_string(path(folder.path())).unwrap();
        assert_eq!(text, "kernel: line 1\nkernel: line 2\n");
    }
}
