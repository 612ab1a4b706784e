//! Character devices of the kernel: `/proc/devices` (proc(5)).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Major numbers of character devices by name. Drivers register a name and its number when their
/// module is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CharDevices {
    majors: BTreeMap<String, u32>,
}

impl CharDevices {
    /// Reads `devices` of the host's proc file system. Fails if the file cannot be read.
    pub fn read(proc_root: &Path) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(proc_root.join("devices"))?))
    }

    /// The devices in the text of `/proc/devices`: lines `NUMBER NAME` below `Character devices:`.
    /// Of a name with several numbers the first counts. Lines of another form are skipped.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().skip_while(|line| line.trim() != "Character devices:");
        let lines = lines.skip(1).take_while(|line| line.trim() != "Block devices:");
        let mut majors = BTreeMap::new();
        for line in lines {
            if let Some((major, name)) = line.trim().split_once(' ')
                && let Ok(major) = major.parse()
            {
                majors.entry(name.trim().to_owned()).or_insert(major);
            }
        }
        Self { majors }
    }

    /// The major number of a name; `None` while the module that registers it is not loaded.
    pub fn major(&self, name: &str) -> Option<u32> {
        self.majors.get(name).copied()
    }
}

#[cfg(test)]
mod tests;
