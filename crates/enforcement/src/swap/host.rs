//! Room for swapped memory: the node's budget, the host's memory, and the limits of the containers. The driver puts it into
//! the process itself, so the kernel charges it to the container's cgroup, and may kill the container for it.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory of the host that swapping never takes, in bytes.
const RESERVE: u64 = 1 << 30;

/// The cgroup of a process that is moved, and the root of its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerMemory {
    root: PathBuf,
    folder: PathBuf,
}

/// The host's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostMemory {
    total: u64,
    available: u64,
}

impl ContainerMemory {
    /// The memory cgroup of a process with this control file of the freezer. In version 1 it has the same path in the hierarchy of
    /// its own.
    pub(crate) fn of(hierarchies: &Path, freezer: &Path) -> Option<Self> {
        let folder = freezer.parent()?;
        match folder.strip_prefix(hierarchies.join("freezer")) {
            Ok(path) => {
                let root = hierarchies.join("memory");
                Some(Self { folder: root.join(path), root })
            }
            Err(_) => Some(Self { root: hierarchies.to_owned(), folder: folder.to_owned() }),
        }
    }

    /// Bytes that the cgroup, and all above it, may still take; `None` if nothing limits them.
    fn room(&self) -> Option<u64> {
        let folders = self.folder.ancestors().take_while(|folder| folder.starts_with(&self.root));
        folders.filter_map(room_of).min()
    }
}

/// Bytes that one cgroup may still take. Pages of files that it has not used lately count as room: the kernel drops them first.
fn room_of(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes"))?;
    let used = read("memory.current").or_else(|| read("memory.usage_in_bytes"))?;
    let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let files = statistics.lines().find_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        matches!(name, "inactive_file" | "total_inactive_file").then(|| bytes.parse().ok())?
    });
    Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
}

impl HostMemory {
    /// Reads `meminfo` of proc(5).
    pub(super) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self { total: field("MemTotal")?, available: field("MemAvailable")? })
    }
}

/// Why there is no room for so many bytes of a share; `None` if there is. `taken` bytes of the budget are in use.
pub(super) fn missing_room(
    bytes: u64,
    taken: u64,
    budget: Option<u64>,
    host: Option<HostMemory>,
    containers: &[ContainerMemory],
) -> Option<String> {
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let need = mebibytes(bytes);
    let budget_name = match budget {
        Some(_) => "swapHostMemory",
        None => "half of the host's memory, the default of swapHostMemory,",
    };
    let budget = budget.or(host.map(|host| host.total / 2)).unwrap_or(0);
    if bytes > budget.saturating_sub(taken) {
        let left = mebibytes(budget.saturating_sub(taken));
        return Some(format!("{need} would exceed what {budget_name} leaves ({left})"));
    }
    let available = host.map_or(0, |host| host.available).saturating_sub(RESERVE);
    if bytes > available {
        return Some(format!(
            "{need} do not fit into the host's memory ({} free)",
            mebibytes(available)
        ));
    }
    let room = containers.iter().filter_map(ContainerMemory::room).min();
    let room = room.filter(|room| bytes > *room)?;
    let why = "raise the memory limit of the pod's containers";
    Some(format!("{need} do not fit into the containers' memory ({} left); {why}", mebibytes(room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       16384 kB\nMemFree:    1 kB\nMemAvailable:    8192 kB\n";
        let memory = HostMemory { total: 16 << 20, available: 8 << 20 };
        assert_eq!(HostMemory::parse(text), Some(memory));
        for text in ["", "MemTotal: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n"] {
            assert_eq!(HostMemory::parse(text), None, "{text:?}");
        }
        assert!(HostMemory::read().is_some_and(|memory| memory.total >= memory.available));
    }

    #[test]
    fn the_budget_and_the_host_have_room_or_not() {
        let host = Some(HostMemory { total: 100 * GIB, available: 40 * GIB });
        let room = |bytes, taken, budget| missing_room(bytes * GIB, taken * GIB, budget, host, &[]);
        assert_eq!(room(30, 10, None), None, "half of the host is the default");
        assert!(room(30, 30, None).is_some_and(|why| why.contains("swapHostMemory")));
        assert!(room(11, 0, Some(10 * GIB)).is_some_and(|why| why.contains("10240 MiB")));
        assert!(room(40, 0, None).is_some_and(|why| why.contains("39936 MiB free")));
        assert!(missing_room(1, 0, None, None, &[]).is_some(), "a host that cannot be read");
    }

    #[test]
    fn the_tightest_cgroup_decides() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let folder = root.join("pod/container");
        fs::create_dir_all(&folder).unwrap();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        write("pod/container/memory.max", "max\n");
        write("pod/container/memory.current", "4096\n");
        write("pod/memory.max", "10737418240\n");
        write("pod/memory.current", "3221225472\n");
        write("pod/memory.stat", "anon 1\ninactive_file 1073741824\n");
        let container = ContainerMemory::of(root, &folder.join("cgroup.freeze")).unwrap();
        assert_eq!(container.room(), Some(8 * GIB));
        let host = Some(HostMemory { total: 100 * GIB, available: 90 * GIB });
        let room = |bytes| missing_room(bytes, 0, None, host, std::slice::from_ref(&container));
        assert_eq!(room(8 * GIB), None);
        assert!(room(8 * GIB + 1).is_some_and(|why| why.contains("memory limit of the pod")));
    }

    #[test]
    fn version_1_has_a_hierarchy_for_memory() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let folder = root.join("memory/pod");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("memory.limit_in_bytes"), "4294967296").unwrap();
        fs::write(folder.join("memory.usage_in_bytes"), "1073741824").unwrap();
        let freezer = root.join("freezer/pod/freezer.state");
        assert_eq!(ContainerMemory::of(root, &freezer).unwrap().room(), Some(3 * GIB));
    }
}
