//! Many requests at once, by as many workers as the comparison names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

/// Workers of every client that writes.
pub(super) const WORKERS: usize = 32;

/// Does a piece of work for each number below `count`, by [`WORKERS`] workers that take the next number
/// each. Ends with the first error.
pub(super) async fn in_parallel<F, W>(count: usize, work: F) -> anyhow::Result<()>
where
    F: Fn(usize) -> W + Send + Sync + 'static,
    W: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (next, work) = (Arc::new(AtomicUsize::new(0)), Arc::new(work));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS.min(count) {
        let (next, work) = (Arc::clone(&next), Arc::clone(&work));
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_number_is_done_once_and_an_error_ends_it() {
        let done = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&done);
        in_parallel(100, move |number| {
            let seen = Arc::clone(&seen);
            async move {
                assert!(seen.lock().unwrap().insert(number));
                Ok(())
            }
        })
        .await
        .unwrap();
        assert_eq!(done.lock().unwrap().len(), 100);
        let failed = in_parallel(100, |number| async move {
            anyhow::ensure!(number != 7, "no");
            Ok(())
        });
        assert!(failed.await.is_err());
    }
}
