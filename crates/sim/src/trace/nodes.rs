//! A node list: `sn,cpu_milli,memory_mib,gpu,model`.

use std::io::Read;

use super::table::{CsvTable, Row};
use super::{NodeRow, TraceError};

/// Ten thousand cores: a larger value has the wrong unit.
pub(super) const CPU_MILLI: (u64, u64) = (0, 10_000_000);
/// A PiB.
pub(super) const MEMORY_MIB: (u64, u64) = (0, 1 << 30);
/// More than any node or pod has.
pub(super) const GPUS: (u32, u32) = (0, 1024);

pub(super) fn read(reader: impl Read, file: &str) -> Result<Vec<NodeRow>, TraceError> {
    let columns = ["cpu_milli", "memory_mib", "gpu", "model"];
    let mut table = CsvTable::open(reader, file, "nodes", "sn", &columns)?;
    let mut nodes = Vec::new();
    while let Some((name, row)) = table.next()? {
        nodes.push(node(name, &row)?);
    }
    if nodes.is_empty() {
        return Err(TraceError::Empty { file: file.to_owned(), what: "nodes" });
    }
    Ok(nodes)
}

fn node(name: String, row: &Row<'_>) -> Result<NodeRow, TraceError> {
    let node = NodeRow {
        name,
        cpu_milli: row.whole("cpu_milli", CPU_MILLI)?,
        memory_mib: row.whole("memory_mib", MEMORY_MIB)?,
        gpus: row.small("gpu", GPUS)?,
        model: row.text("model").to_owned(),
    };
    let is_name = |model: &str| !model.is_empty() && !model.contains(['|', '\n']);
    if node.gpus > 0 && !is_name(&node.model) {
        return Err(row.field("model", "the name of one model, which a node with GPUs needs"));
    }
    Ok(node)
}
