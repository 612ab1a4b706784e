//! NVIDIA's GPUs on the PCI bus, as the kernel lists them: no driver is needed.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::PciAddress;

/// NVIDIA's vendor number, as in sysfs.
const NVIDIA: &str = "0x10de";
/// Begin of the classes of VGA controllers and 3D controllers, as in sysfs. The last two digits are the interface.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// The addresses of NVIDIA's GPUs; empty on a machine without a PCI bus. Fails if the kernel's list cannot be read.
pub fn gpus_on_bus(sys_root: &Path) -> io::Result<BTreeSet<PciAddress>> {
    let entries = match std::fs::read_dir(sys_root.join("bus/pci/devices")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut gpus = BTreeSet::new();
    for entry in entries {
        let entry = entry?;
        let read = |file: &str| match std::fs::read_to_string(entry.path().join(file)) {
            // A device that has just gone has no files.
            Err(error) if is_gone(&error) => Ok(String::new()),
            text => text,
        };
        let class = read("class")?;
        if read("vendor")?.trim() == NVIDIA && GPU_CLASSES.iter().any(|it| class.starts_with(it)) {
            let address =
                entry.file_name().to_str().and_then(|name| name.parse::<PciAddress>().ok());
            gpus.extend(address);
        }
    }
    Ok(gpus)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn gpus_are_nvidia_s_display_controllers() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(gpus_on_bus(sys.path()).unwrap(), BTreeSet::new(), "there is no PCI bus");
        for (address, vendor, class) in [
            ("0000:17:00.0", "0x10de", "0x030200"),
            ("0000:03:00.0", "0x10de", "0x030000"),
            // The audio function of a GPU, an NVSwitch, another vendor's display, and no address.
            ("0000:03:00.1", "0x10de", "0x040300"),
            ("0000:04:00.0", "0x10de", "0x068000"),
            ("0000:05:00.0", "0x1a03", "0x030000"),
            ("pci", "0x10de", "0x030200"),
        ] {
            let folder = sys.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(folder.join("class"), format!("{class}\n")).unwrap();
        }
        let found: Vec<String> =
            gpus_on_bus(sys.path()).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["0000:03:00.0", "0000:17:00.0"]);
    }
}
