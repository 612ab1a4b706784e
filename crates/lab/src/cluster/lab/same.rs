//! Whether the lab that is up is the one that an `up` asks for.

use std::path::Path;

use anyhow::bail;

use super::{Lab, UpOptions};
use crate::cluster::component::Component;
use crate::cluster::settings::Node;

impl Lab {
    /// Refuses an `up` that asks for another lab than the one that is up. What it does not say stays as it is.
    pub(super) fn check_same(&self, options: &UpOptions) -> anyhow::Result<()> {
        let names = |nodes: &[Node]| -> Vec<(String, String)> {
            nodes.iter().map(|node| (node.name.clone(), node.machine.clone())).collect()
        };
        if let Some(requested) = &options.dynamic_mig
            && self.settings.all_nodes().any(|node| requested.of(&node.name) != node.dynamic_mig)
        {
            bail!(
                "a lab with another --dynamic-mig is up in {}: run `octavo lab down` first, or \
                 change it with the node label {}",
                self.layout.root().display(),
                octavo_api::names::LABEL_DYNAMIC_MIG
            );
        }
        if let Some(requested) = &options.owners
            && self.settings.all_nodes().any(|node| requested.of(node) != node.owner)
        {
            bail!(
                "a lab with another --owner is up in {}: run `octavo lab down` first, or change it \
                 with the node label {}",
                self.layout.root().display(),
                octavo_api::names::LABEL_OWNER
            );
        }
        if let Some(requested) = options.scheduler
            && requested != self.settings.components.contains(&Component::OctavoScheduler)
        {
            bail!(
                "a lab with{} Octavo's scheduler is up in {}: run `octavo lab down` first",
                if requested { "out" } else { "" },
                self.layout.root().display()
            );
        }
        for (component, requested, flag) in [
            (Component::Coredns, options.dns, "--dns"),
            (Component::MpiOperator, options.mpi_operator, "--mpi-operator"),
        ] {
            let runs = self.settings.components.contains(&component);
            if requested.is_some_and(|requested| requested != runs) {
                bail!(
                    "a lab with another {flag} is up in {}: run `octavo lab down` first",
                    self.layout.root().display()
                );
            }
        }
        if let Some(requested) = options.imex
            && requested != self.settings.imex
        {
            bail!(
                "a lab with another --imex-mode, --imex-isolation or --imex-encryption is up in {}: run `octavo lab down` first",
                self.layout.root().display()
            );
        }
        if let Some(requested) = &options.nodes
            && names(&requested.nodes()) != names(&self.settings.nodes)
        {
            bail!(other_nodes_refusal("nodes", "--nodes", self.layout.root()));
        }
        if let Some(requested) = &options.real_nodes
            && names(&requested.nodes()) != names(self.real_nodes())
        {
            bail!(other_nodes_refusal("real nodes", "--real-node", self.layout.root()));
        }
        if let (Some(requested), Some(real)) = (options.real_node_kind, &self.settings.real)
            && requested != real.kind()
        {
            bail!(
                "a lab with another --real-node-kind is up in {}: run `octavo lab down` first",
                self.layout.root().display()
            );
        }
        Ok(())
    }
}

/// Refuses an `up` with other nodes than those of the running lab.
fn other_nodes_refusal(nodes: &str, flag: &str, root: &Path) -> String {
    format!(
        "a lab with other {nodes} is up in {}: run `octavo lab down` first, or omit {flag} to keep \
         them",
        root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_other_nodes_is_one_line_with_single_spaces() {
        let text = other_nodes_refusal("real nodes", "--real-node", Path::new("/lab"));
        assert_eq!(
            text,
            "a lab with other real nodes is up in /lab: run `octavo lab down` first, or omit \
             --real-node to keep them"
        );
        assert!(!text.contains("  "), "{text}");
    }
}
