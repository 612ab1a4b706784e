//! The driver's modules that the kernel has loaded, by its list in `/proc/modules` (proc(5)).

use std::io;
use std::path::Path;

/// The modules of the driver's package, each before those that it needs: they are unloaded in this order.
const UNLOAD_ORDER: [&str; 5] =
    ["nvidia_peermem", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"];

/// The driver itself, which all others need.
pub(super) const DRIVER: &str = "nvidia";

/// A loaded module of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadedModule {
    /// Its name.
    pub(super) name: &'static str,
    /// Names of the loaded modules that need it.
    holders: Vec<String>,
}

/// The loaded modules of the driver, in the order in which they are unloaded. Fails if the list cannot be read.
pub(super) fn loaded(proc_root: &Path) -> io::Result<Vec<LoadedModule>> {
    Ok(parse(&std::fs::read_to_string(proc_root.join("modules"))?))
}

/// A line is `NAME SIZE USES HOLDER,HOLDER, STATE ADDRESS`, with `-` for no holder.
fn parse(text: &str) -> Vec<LoadedModule> {
    let module = |name: &'static str| {
        let mut lines = text.lines().map(str::split_whitespace);
        let mut words = lines.find(|words| words.clone().next() == Some(name))?;
        let holders = words.nth(3).unwrap_or_default().split(',');
        let holders = holders.filter(|holder| !matches!(*holder, "" | "-"));
        Some(LoadedModule { name, holders: holders.map(str::to_owned).collect() })
    };
    UNLOAD_ORDER.into_iter().filter_map(module).collect()
}

/// A module that needs one of these and is none of the driver's package: its name, and that of the one that it needs.
pub(super) fn foreign_holder(modules: &[LoadedModule]) -> Option<(String, &'static str)> {
    modules.iter().find_map(|module| {
        let is_foreign = |holder: &&String| !UNLOAD_ORDER.contains(&holder.as_str());
        let holder = module.holders.iter().find(is_foreign)?;
        Some((holder.clone(), module.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of a node with displays and `GPUDirect`.
    const LIST: &str = "\
nvidia_uvm 4890624 4 - Live 0x0000000000000000 (OE)
nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)
nvidia_drm 126976 2 - Live 0x0000000000000000 (OE)
nvidia_modeset 1585152 3 nvidia_drm, Live 0x0000000000000000 (OE)
nvidia 56717312 83 nvidia_uvm,nvidia_peermem,nvidia_modeset, Live 0x0000000000000000 (OE)
drm 622592 6 nvidia_drm,ast,drm_kms_helper, Live 0x0000000000000000
ib_core 434176 9 nvidia_peermem,rdma_cm,ib_uverbs, Live 0x0000000000000000
";

    #[test]
    fn modules_come_before_those_that_they_need() {
        let found = parse(LIST);
        let names: Vec<_> = found.iter().map(|module| module.name).collect();
        assert_eq!(names, UNLOAD_ORDER);
        assert_eq!(found[2].holders, ["nvidia_drm"]);
        assert_eq!(foreign_holder(&found), None);
        let few = parse("snd 1 0 - Live 0x0\nnvidia 1 0 - Live 0x0 (OE)\nnvidia_uvm");
        assert_eq!(
            few.iter().map(|module| module.name).collect::<Vec<_>>(),
            ["nvidia_uvm", "nvidia"]
        );
        assert!(parse("").is_empty());
    }

    #[test]
    fn a_holder_of_another_package_is_found() {
        let list = LIST.replace("nvidia_peermem,nvidia_modeset,", "nvidia_modeset,gdrdrv,");
        let found = foreign_holder(&parse(&list));
        assert_eq!(found, Some(("gdrdrv".to_owned(), "nvidia")));
        let fixed = foreign_holder(&parse("nvidia 1 - [permanent], Live 0x0\n"));
        assert_eq!(fixed, Some(("[permanent]".to_owned(), "nvidia")));
    }
}
