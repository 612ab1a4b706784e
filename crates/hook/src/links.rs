//! Symbolic links in a container: the names under which programs search the driver's libraries.

use std::path::Path;

use anyhow::Context;

use super::rootfs::Rootfs;

/// Creates links given as `TARGET::LINK`.
pub(super) fn create(root: &Rootfs, links: &[String]) -> anyhow::Result<()> {
    for text in links {
        let (target, link) = text
            .split_once("::")
            .filter(|(target, link)| !target.is_empty() && !link.is_empty())
            .with_context(|| format!("link {text:?} is not TARGET::LINK"))?;
        root.symlink(target, Path::new(link))
            .with_context(|| format!("making link {link} to {target} in the container"))?;
    }
    Ok(())
}
