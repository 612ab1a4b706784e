mod event_loop;
mod pods;
mod watches;
mod writer;

use std::time::{Duration, SystemTime};

use octavo_kube_io::lease::{Deadline, Leadership, Term};
use tokio::time::Instant;

/// A lease that this process holds for a time.
fn leading(time: Duration) -> Leadership {
    let after = |time| Deadline { at: Instant::now() + time, system: SystemTime::now() + time };
    let (until, ends) = (after(time), after(time + Duration::from_secs(5)));
    Leadership::Leading(Term { until, ends, number: 1, since: Instant::now() })
}

fn following() -> Leadership {
    Leadership::Following { holder: Some("other".to_owned()) }
}
