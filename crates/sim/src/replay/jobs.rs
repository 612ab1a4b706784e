//! Parallel work with results in order.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs `count` pieces of work in up to `jobs` threads. Each thread takes the next unclaimed piece.
/// The results do not depend on the assignment to threads.
pub(crate) fn in_order<T: Send>(
    count: usize,
    jobs: NonZeroUsize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let threads = jobs.get().min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= count {
                        return;
                    }
                    let result = work(piece);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((piece, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(piece, _)| *piece);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        let squares: Vec<usize> = (0..100).map(|number| number * number).collect();
        for jobs in [1, 2, 7, 1000] {
            let jobs = NonZeroUsize::new(jobs).unwrap();
            assert_eq!(in_order(100, jobs, |number| number * number), squares);
        }
        assert_eq!(in_order(0, NonZeroUsize::MIN, |number| number), Vec::<usize>::new());
    }
}
