//! Numbers of character devices in sysfs: a file `dev` with `MAJOR:MINOR` in the folder of each.

use std::fs;
use std::path::Path;

/// A device with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SysfsDevice {
    /// Its name, which is that of its folder.
    pub name: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The devices below a folder with the names that are meant, sorted by name. Entries without numbers are left out.
pub fn devices(folder: &Path, is_meant: impl Fn(&str) -> bool) -> Vec<SysfsDevice> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut devices: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_meant(name))?;
            let numbers = fs::read_to_string(entry.path().join("dev")).ok()?;
            let (major, minor) = numbers.trim().split_once(':')?;
            Some(SysfsDevice { name, major: major.parse().ok()?, minor: minor.parse().ok()? })
        })
        .collect();
    devices.sort();
    devices
}
