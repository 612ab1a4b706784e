//! Threads and TLS of a program.

use std::future::Future;

use anyhow::{Context, anyhow};
use tokio::runtime::{Builder, Runtime};

/// Threads of programs that serve many calls at once.
const WORKER_THREADS: usize = 2;

/// Largest number of threads for blocking calls, mostly on files. A process for hundreds of nodes
/// would otherwise start as many at once.
const MAX_BLOCKING_THREADS: usize = 64;

/// Runs a future that uses TLS. rustls takes its cryptography provider from the process, once.
pub fn with_tls<T>(
    runtime: &Runtime,
    program: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS library was installed before"))?;
    runtime.block_on(Box::pin(program))
}

/// A runtime for a client command; the current thread suffices.
pub fn client_runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("the runtime cannot start")
}

/// A runtime for a server.
pub fn server_runtime() -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot start")
}
