//! `octavo agent inventory`: prints the node's GPUs.

use std::io::{self, Write};

use anyhow::Context;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Inventory, describe};

use crate::args::{InventoryArgs, InventoryForm};
use crate::config::NodeFile;
use crate::devices::device_name;

/// Reads the GPUs once and prints them.
pub(super) fn print(args: &InventoryArgs) -> anyhow::Result<()> {
    let file = args.node.config.as_deref().map(NodeFile::read).transpose()?.unwrap_or_default();
    // The name is not used here, so it is optional.
    let unnamed = NodeFile { node_name: Some("this-node".to_owned()), ..NodeFile::default() };
    let config = args.node.settings().or(file).or(unnamed).complete()?;
    let library = match &config.driver_library {
        Some(library) => library.clone(),
        None => find_library(&config.paths.driver_root_seen)?,
    };
    let driver = Nvml::open(&library, &config.paths.sys_root)?;
    let inventory = Inventory::read(&driver).context("cannot read the GPUs")?;
    let text = match args.output {
        InventoryForm::Table => table(&inventory),
        InventoryForm::Yaml => serde_saphyr::to_string(&describe(&inventory, &args.name)?)?,
        InventoryForm::Json => {
            serde_json::to_string_pretty(&describe(&inventory, &args.name)?)? + "\n"
        }
    };
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        // A reader such as `head` may close the pipe early.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot print"),
    }
}

/// A line for each GPU, in columns.
fn table(inventory: &Inventory) -> String {
    let heading = ["DEVICE", "PRODUCT", "MEMORY", "PCI", "NUMA", "FABRIC CLIQUE", "UUID"];
    let mut rows = vec![heading.map(str::to_owned)];
    for gpu in &inventory.gpus {
        let clique = gpu.fabric.as_ref().and_then(|fabric| fabric.clique.as_ref());
        rows.push([
            device_name(gpu),
            gpu.name.clone(),
            format!("{} MiB", gpu.memory_bytes >> 20),
            gpu.pci.to_string(),
            gpu.numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
            clique.map_or_else(|| "-".to_owned(), ToString::to_string),
            gpu.uuid.clone(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    for gpu in &inventory.unreadable {
        text.extend([format!("GPU {} cannot be read: {}\n", gpu.index, gpu.error)]);
    }
    let versions = &inventory.versions;
    let (major, minor) = versions.cuda;
    text.extend([format!(
        "driver {}, CUDA {major}.{minor}, NVML {}\n",
        versions.driver, versions.nvml
    )]);
    text
}
