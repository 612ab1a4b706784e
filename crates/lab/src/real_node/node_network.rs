//! The network of a real node within its namespace: its address, routes to the other nodes' pods,
//! and the addresses that are translated. No kube-proxy does that here.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::{NodeContext, node_contexts, tool};
use crate::cluster::settings::RealNodes;

/// Address and port of the service `kubernetes`, the first of the service range.
const SERVICE: (&str, &str) = ("10.96.0.1/32", "443");

/// Longest wait for the other end to connect the veth.
const VETH_TIMEOUT: Duration = Duration::from_mins(1);

/// Sets up the network. Call it only in the node's own network namespace.
pub(super) async fn set_up(context: &NodeContext<'_>) -> anyhow::Result<()> {
    wait_for_veth().await?;
    let address = format!("{}/24", context.address());
    let gateway = context.real.gateway().to_string();
    tool::run("ip", &["link", "set", "dev", "lo", "up"])?;
    tool::run("ip", &["address", "add", &address, "dev", "eth0"])?;
    tool::run("ip", &["link", "set", "dev", "eth0", "up"])?;
    tool::run("ip", &["route", "add", "default", "via", &gateway])?;
    for peer in
        node_contexts(context.layout, context.settings).filter(|peer| peer.number != context.number)
    {
        let (pods, via) = (RealNodes::pods(peer.number), peer.address().to_string());
        tool::run("ip", &["route", "add", &pods, "via", &via])?;
    }
    // A setting of this namespace, not of the machine.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let the node forward packets")?;
    for rule in address_rules(context) {
        let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
        tool::run("iptables", &rule).context("set up the translation of addresses")?;
    }
    Ok(())
}

/// Arguments of `iptables` for a node's translated addresses.
///
/// Traffic for the service goes to the API server, from pods (PREROUTING) and from the node itself
/// (OUTPUT). Pods keep their addresses among themselves. Outside they have the node's, because the
/// machine has no route to them.
pub(super) fn address_rules(context: &NodeContext<'_>) -> Vec<Vec<String>> {
    let (service, port) = SERVICE;
    let apiserver = context.settings.apiserver().to_string();
    let pods = RealNodes::pods(context.number);
    let to_service = |chain| {
        let select = ["-A", chain, "-d", service, "-p", "tcp", "--dport", port];
        [&select[..], &["-j", "DNAT", "--to-destination", &apiserver]].concat()
    };
    let select = ["-A", "POSTROUTING", "-s", &pods, "!", "-d", RealNodes::ALL_PODS];
    let from_pods = [&select[..], &["-j", "MASQUERADE"]].concat();
    [to_service("PREROUTING"), to_service("OUTPUT"), from_pods]
        .map(|rule| ["-w", "-t", "nat"].into_iter().chain(rule).map(str::to_owned).collect())
        .into()
}

async fn wait_for_veth() -> anyhow::Result<()> {
    let deadline = Instant::now() + VETH_TIMEOUT;
    loop {
        // `/sys/class/net` would show the namespace in which it was mounted.
        let links = fs::read_to_string("/proc/self/net/dev").context("list the node's links")?;
        if links.lines().any(|line| line.trim_start().starts_with("eth0:")) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the node is not connected to the bridge: start it with `octavo lab up`");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
