//! The nodes of a domain, and their addresses.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Most nodes of a list, more than any fabric has.
const MAX_NODES: usize = 1024;

/// Finds addresses in a hosts file.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    hosts: PathBuf,
}

impl Names {
    pub(crate) fn new(hosts: &Path) -> Self {
        Self { hosts: hosts.to_owned() }
    }

    /// The address of a node, as the hosts file says it now; `None` for an unknown name.
    pub(crate) fn address(&self, node: &str) -> Option<IpAddr> {
        if let Ok(address) = node.parse() {
            return Some(address);
        }
        let text = fs::read_to_string(&self.hosts).ok()?;
        text.lines().find_map(|line| {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let address = words.next()?;
            words.any(|name| name.eq_ignore_ascii_case(node)).then(|| address.parse().ok())?
        })
    }
}

/// Reads a list of nodes: an address or a name a line.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("reading the list of nodes {}", file.display()))?;
    let lines = text.lines().map(str::trim);
    let nodes = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let nodes: Vec<String> = nodes.map(str::to_owned).collect();
    ensure!(!nodes.is_empty(), "the list of nodes {} is empty", file.display());
    ensure!(nodes.len() <= MAX_NODES, "{} names more than {MAX_NODES} nodes", file.display());
    Ok(nodes)
}

/// The node's own index and address: of the first node that leads to `own`, or to any address of this host.
pub(crate) fn own(nodes: &[String], names: &Names, own: Option<IpAddr>) -> Option<(u32, IpAddr)> {
    let is_own = |address: &IpAddr| match own {
        Some(own) => *address == own,
        None => UdpSocket::bind((*address, 0)).is_ok(),
    };
    let addresses = nodes.iter().map(|node| names.address(node).filter(is_own));
    (0..).zip(addresses).find_map(|(index, address)| Some((index, address?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_hosts_file_now() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n10.0.0.2 a b # c\n# 10.0.0.3 d\nx e\n").unwrap();
        let names = Names::new(&hosts);
        let found = |node: &str| names.address(node).map(|address| address.to_string());
        assert_eq!(found("b").as_deref(), Some("10.0.0.2"));
        assert_eq!(found("B").as_deref(), Some("10.0.0.2"));
        assert_eq!((found("c"), found("d"), found("e")), (None, None, None));
        assert_eq!(found("10.9.9.9").as_deref(), Some("10.9.9.9"));
        fs::write(&hosts, "10.0.0.7 b\n").unwrap();
        assert_eq!(found("b").as_deref(), Some("10.0.0.7"));
    }

    #[test]
    fn a_node_finds_itself_by_its_address() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, "192.0.2.1 first\n127.0.0.9 second\n").unwrap();
        let names = Names::new(&hosts);
        let nodes = ["unknown", "first", "second"].map(str::to_owned);
        let found = own(&nodes, &names, None).map(|(index, _)| index);
        assert_eq!(found, Some(2), "only that address is of this host");
        let first: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(own(&nodes, &names, Some(first)), Some((1, first)));
        assert_eq!(own(&nodes, &names, "192.0.2.2".parse().ok()), None);
    }

    #[test]
    fn a_list_has_a_node_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.cfg");
        fs::write(&file, "# rack 7\n10.0.0.1\n\n  name  \n").unwrap();
        assert_eq!(read(&file).unwrap(), ["10.0.0.1", "name"]);
        fs::write(&file, "\n# none\n").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("is empty"));
        fs::write(&file, "x\n".repeat(MAX_NODES + 1)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("more than"));
    }
}
