//! A pod list: `name,cpu_milli,memory_mib,num_gpu,gpu_milli` and, in some lists, `gpu_spec`, `qos`,
//! `pod_phase`, `creation_time`, `deletion_time`, `scheduled_time`.

use std::io::Read;

use super::models::Models;
use super::nodes::{CPU_MILLI, GPUS, MEMORY_MIB};
use super::table::{CsvTable, Row};
use super::{GPU_MILLI, NodeRow, PodRow, TraceError};

pub(super) fn read(
    reader: impl Read,
    file: &str,
    nodes: &[NodeRow],
) -> Result<Vec<PodRow>, TraceError> {
    let columns = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
    let mut table = CsvTable::open(reader, file, "pods", "name", &columns)?;
    let models = Models::of(nodes);
    let mut pods = Vec::new();
    while let Some((name, row)) = table.next()? {
        pods.push(pod(name, &row, &models)?);
    }
    if pods.is_empty() {
        return Err(TraceError::Empty { file: file.to_owned(), what: "pods" });
    }
    Ok(pods)
}

fn pod(name: String, row: &Row<'_>, models: &Models<'_>) -> Result<PodRow, TraceError> {
    let pod = PodRow {
        name,
        cpu_milli: row.whole("cpu_milli", CPU_MILLI)?,
        memory_mib: row.whole("memory_mib", MEMORY_MIB)?,
        num_gpu: row.small("num_gpu", GPUS)?,
        gpu_milli: row.small("gpu_milli", (0, GPU_MILLI))?,
        models: models.alternatives(row)?,
        qos: row.text("qos").to_owned(),
        phase: row.text("pod_phase").to_owned(),
        creation_time: row.time("creation_time")?,
        deletion_time: row.time("deletion_time")?,
        scheduled_time: row.time("scheduled_time")?,
    };
    match (pod.num_gpu, pod.gpu_milli) {
        (0, 1..) => Err(row.contradiction(
            "num_gpu, gpu_milli",
            format!(
                "requests {} milli without a GPU; a share needs num_gpu 1, and a pod without GPUs has 0 and 0",
                pod.gpu_milli
            ),
        )),
        (1.., 0) => Err(row.contradiction(
            "num_gpu, gpu_milli",
            format!("requests 0 milli of {} GPU; gpu_milli is the part of each", pod.num_gpu),
        )),
        _ => match (pod.creation_time, pod.deletion_time) {
            (Some(creation), Some(deletion)) if deletion < creation => Err(row.contradiction(
                "creation_time, deletion_time",
                format!("is deleted at {deletion}, before its creation at {creation}"),
            )),
            _ => Ok(pod),
        },
    }
}
