//! The network of real nodes outside of their namespaces. It is a bridge with the API server's
//! address, and a veth pair to each node. The machine's other networking is unchanged: no route
//! leads further, and no address is translated outside of the nodes.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{NodeContext, lab_id, tool};
use crate::cluster::layout::Layout;
use crate::cluster::process::Process;
use crate::cluster::settings::RealNodes;

/// Number of /24 networks in 198.18.0.0/15, a range for network tests (RFC 2544). Machines rarely
/// have addresses there.
const NETWORKS: u16 = 512;

/// Folder of this namespace's network links.
const LINKS_DIR: &str = "/sys/class/net";

/// Longest wait for a node's namespaces.
const NAMESPACE_TIMEOUT: Duration = Duration::from_mins(1);

impl RealNodes {
    /// The network of all pods.
    pub(super) const ALL_PODS: &str = "10.244.0.0/16";

    /// The machine's address on the bridge, on which the API server listens.
    pub fn gateway(&self) -> Ipv4Addr {
        host(self.network, 1)
    }

    /// Address of the node with index `number`.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        host(self.network, number.saturating_add(10))
    }

    /// The pod network of a node. It is the same in every lab, since labs cannot reach each other.
    pub(super) fn pods(number: u8) -> String {
        format!("10.244.{number}.0/24")
    }
}

/// Chooses a network without an address or route on this machine.
pub(crate) fn choose(layout: &Layout) -> anyhow::Result<u16> {
    let taken = format!(
        "{}\n{}",
        tool::run("ip", &["-4", "-oneline", "address", "show"])?,
        tool::run("ip", &["-4", "route", "show", "table", "all"])?
    );
    let digest = Sha256::digest(layout.root().as_os_str().as_encoded_bytes());
    let first = digest.iter().take(2).fold(0_u16, |sum, byte| (sum << 8) | u16::from(*byte));
    (0..NETWORKS)
        .map(|step| (first % NETWORKS + step) % NETWORKS)
        .find(|network| !is_taken(&taken, *network))
        .context("no network in 198.18.0.0/15 is free: take down labs that are not used")
}

/// Creates the bridge if it is missing.
pub(crate) fn ensure_bridge(layout: &Layout, real: &RealNodes) -> anyhow::Result<()> {
    let bridge = bridge(layout);
    if link_exists(&bridge) {
        return Ok(());
    }
    let address = format!("{}/24", real.gateway());
    let made = (|| {
        tool::run("ip", &["link", "add", "name", &bridge, "type", "bridge"])?;
        tool::run("ip", &["address", "add", &address, "dev", &bridge])?;
        tool::run("ip", &["link", "set", "dev", &bridge, "up"])
    })();
    made.map(drop).context("make the bridge of the real nodes")
}

/// Waits until the process has its own network namespace, then connects that to the bridge by a
/// veth pair.
pub(super) async fn connect(context: &NodeContext<'_>, unshare: Process) -> anyhow::Result<()> {
    let deadline = Instant::now() + NAMESPACE_TIMEOUT;
    let own = fs::read_link("/proc/self/ns/net").context("read this process's namespace")?;
    while fs::read_link(format!("/proc/{}/ns/net", unshare.pid)).ok().is_none_or(|ns| ns == own) {
        if !unshare.is_alive() || Instant::now() >= deadline {
            bail!(
                "{} did not get namespaces of its own: see {}",
                context.node.name,
                context.layout.real_log(&context.node.name, "node").display()
            );
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let veth = veth(context.layout, context.number);
    // Left by a node that was just killed.
    delete(&veth)?;
    let (bridge, unshare) = (bridge(context.layout), unshare.pid.to_string());
    let made = (|| {
        let peer = ["peer", "name", "eth0", "netns", &unshare];
        let add = [&["link", "add", "name", &veth, "type", "veth"][..], &peer].concat();
        tool::run("ip", &add)?;
        tool::run("ip", &["link", "set", "dev", &veth, "master", &bridge, "up"])
    })();
    made.map(drop).with_context(|| format!("connect {} to the bridge", context.node.name))
}

/// Adds the link of a virtual machine to the bridge, and returns its name. The node is its user.
pub(super) fn add_tap(context: &NodeContext<'_>) -> anyhow::Result<String> {
    let tap = veth(context.layout, context.number);
    delete(&tap)?;
    let bridge = bridge(context.layout);
    let made = (|| {
        tool::run("ip", &["tuntap", "add", "dev", &tap, "mode", "tap"])?;
        tool::run("ip", &["link", "set", "dev", &tap, "master", &bridge, "up"])
    })();
    made.with_context(|| format!("connect {} to the bridge", context.node.name))?;
    Ok(tap)
}

/// Whether a link of this lab exists.
pub(super) fn has_leftovers(layout: &Layout) -> bool {
    !links(layout).is_empty()
}

/// Deletes the lab's links.
pub(super) fn remove(layout: &Layout) -> anyhow::Result<()> {
    links(layout).iter().try_for_each(|link| delete(link))
}

/// The lab's links, the veths first.
fn links(layout: &Layout) -> Vec<String> {
    let (bridge, veths) = (bridge(layout), format!("ov{}-", lab_id(layout)));
    let names = fs::read_dir(LINKS_DIR).into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| *name == bridge || name.starts_with(&veths))
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.clone()));
    names
}

/// A name of 15 characters, the limit for a link.
fn bridge(layout: &Layout) -> String {
    format!("octavo-{}", lab_id(layout))
}

fn veth(layout: &Layout, number: u8) -> String {
    format!("ov{}-{number}", lab_id(layout))
}

/// Deletes a link if it exists. The kernel also deletes veths of ended namespaces, asynchronously.
fn delete(link: &str) -> anyhow::Result<()> {
    if !link_exists(link) {
        return Ok(());
    }
    match tool::run("ip", &["link", "delete", "dev", link]) {
        Err(_) if !link_exists(link) => Ok(()),
        deleted => deleted.map(drop),
    }
}

fn link_exists(link: &str) -> bool {
    Path::new(LINKS_DIR).join(link).exists()
}

fn host(network: u16, host: u8) -> Ipv4Addr {
    let [high, low] = (network % NETWORKS).to_be_bytes();
    Ipv4Addr::new(198, 18 + high, low, host)
}

/// Whether a text of addresses and routes contains an address of the network.
fn is_taken(text: &str, network: u16) -> bool {
    let [a, b, c, _] = host(network, 0).octets();
    let prefix = format!("{a}.{b}.{c}.");
    text.split_whitespace().any(|word| word.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(network: u16) -> RealNodes {
        RealNodes { containerd: "/c".into(), network, nodes: Vec::new(), virtual_machines: None }
    }

    #[test]
    fn every_network_has_addresses_of_its_own() {
        assert_eq!(real(0).gateway(), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(real(511).gateway(), Ipv4Addr::new(198, 19, 255, 1));
        assert_eq!(real(256).address(3), Ipv4Addr::new(198, 19, 0, 13));
    }

    #[test]
    fn a_network_with_an_address_or_a_route_is_taken() {
        let text = "7: octavo-1 inet 198.18.7.1/24 brd 198.18.7.255 scope global octavo-1\n\
                    198.19.0.0/24 dev x proto kernel";
        assert!(is_taken(text, 7) && is_taken(text, 256));
        assert!(!is_taken(text, 70) && !is_taken(text, 1));
    }

    #[test]
    fn names_of_links_follow_from_the_state_folder_and_fit() {
        let layout = |path: &str| Layout::new(Path::new(path)).unwrap();
        assert_eq!(bridge(&layout("/a")).len(), 15);
        assert!(veth(&layout("/a"), 63).len() <= 15);
        assert_ne!(bridge(&layout("/a")), bridge(&layout("/b")));
    }
}
