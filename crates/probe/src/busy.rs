//! `octavo probe --busy`: keeps a GPU busy, and counts how much work it has done meanwhile.
//!
//! All kernels have the same work. So the counts of processes that run at the same time show how the GPU's time was divided. The
//! counts of each second of the clock let seconds be left out in which not all of them ran.

use std::collections::BTreeMap;
use std::io::Write;
use std::ptr::null_mut;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;

use crate::driver::{Cuda, CudaError, Handle, checked};
use crate::environment::Gpu;
use crate::paths::GpuContext;
use crate::run::make_current;

/// A kernel that multiplies in a loop, for any GPU since Maxwell. A step takes some cycles of the multiprocessor, so the kernel
/// takes about 100 microseconds. It counts steps and no time: time passes, too, while another process has the GPU.
const KERNEL: &[u8] = b".version 6.0\n.target sm_50\n.address_size 64\n\
    .visible .entry octavo_busy(.param .u64 place)\n{\n\
    .reg .u32 %step, %value;\n.reg .u64 %place;\n.reg .pred %more;\n\
    ld.param.u64 %place, [place];\nmov.u32 %step, 20000;\nmov.u32 %value, 1;\n\
    again:\nmad.lo.u32 %value, %value, 1664525, 1013904223;\nsub.u32 %step, %step, 1;\n\
    setp.ne.u32 %more, %step, 0;\n@%more bra again;\n\
    st.global.u32 [%place], %value;\nret;\n}\n\0";

/// Launches between two waits for the GPU.
const BATCH: u32 = 16;

/// The report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// Number of the GPU.
    gpu: i32,
    /// Kernels that ended.
    kernels: u64,
    /// Seconds from the first launch to the last end.
    seconds: f64,
    /// Longest time of a batch of kernels, in seconds.
    longest_batch_seconds: f64,
    /// Kernels that ended, by the second since 1970 in which their batch ended.
    kernels_by_second: BTreeMap<u64, u64>,
}

/// Keeps the first of these GPUs busy for a time, and writes a JSON document.
pub(crate) fn run(
    cuda: &Cuda,
    gpus: &[&Gpu],
    time: Duration,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let gpu = gpus.first().context("there is no GPU")?;
    let context = make_current(cuda, gpu.number)
        .with_context(|| format!("make a context on GPU {} ({})", gpu.number, gpu.uuid))?;
    let report = keep_busy(&context, gpu.number, time)?;
    cuda.primary_release(context.device)?;
    writeln!(out, "{}", serde_json::to_string(&report)?)?;
    out.flush()?;
    Ok(())
}

fn keep_busy(context: &GpuContext<'_>, gpu: i32, time: Duration) -> Result<Report, CudaError> {
    let cuda = context.cuda;
    let (mut module, mut function): (Handle, Handle) = (null_mut(), null_mut());
    cuda.module_load(&mut module, KERNEL.as_ptr().cast())?;
    cuda.module_function(&mut function, module, c"octavo_busy".as_ptr())?;
    let launch = cuda.launcher()?;
    let mut place = 0_u64;
    cuda.allocate(&mut place, 4)?;
    let mut arguments = [(&raw mut place).cast()];
    let (mut kernels_by_second, mut longest) = (BTreeMap::new(), Duration::ZERO);
    let began = Instant::now();
    while began.elapsed() < time {
        let batch = Instant::now();
        for _ in 0..BATCH {
            let arguments = arguments.as_mut_ptr();
            // SAFETY: the function belongs to the module and takes one address, which the driver copies during the call.
            let code =
                unsafe { launch(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), arguments, null_mut()) };
            checked("cuLaunchKernel", code)?;
        }
        cuda.context_synchronize()?;
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        *kernels_by_second.entry(second).or_insert(0) += u64::from(BATCH);
        longest = longest.max(batch.elapsed());
    }
    let seconds = began.elapsed().as_secs_f64();
    cuda.free(place)?;
    cuda.module_unload(module)?;
    Ok(Report {
        api_version: "cli.octavo.dev/v1alpha1",
        kind: "Busy",
        gpu,
        kernels: kernels_by_second.values().sum(),
        seconds,
        longest_batch_seconds: longest.as_secs_f64(),
        kernels_by_second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::tests::with_gpu;

    #[test]
    fn kernels_are_counted() {
        with_gpu("t4.yaml", |context| {
            let report = keep_busy(context, 0, Duration::from_millis(20)).expect("a working GPU");
            assert!(report.kernels >= u64::from(BATCH), "{report:?}");
            assert!(report.seconds >= 0.02, "{report:?}");
        });
    }
}
