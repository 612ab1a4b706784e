//! Time that a lease adds to a launch. Clients of one GPU are measured in turn, batch by batch: without enforcement, with a guard
//! but no lease page, with a free lease, and with a lease that is capped. This program is the agent.

use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};
use octavo_guard_abi::lease_page::Lease;
use octavo_guard_abi::message::{Frame, LEASE_PAGE, SIZE};
use octavo_lease_page::SharedPage;

use crate::memory_enforcement::Programs;
use crate::memory_enforcement::bed::{Share, Testbed};
use crate::memory_enforcement::client::Client;
use crate::memory_enforcement::cost::{SAMPLES, middle};

/// Memory of a share.
const SHARE_BYTES: u64 = 1 << 30;

/// Launches of a batch.
const LAUNCHES: u32 = 2_000;

/// The cap: 16 launches for each mark.
const CAP: u32 = 64;

/// A client with a lease.
struct Leased {
    client: Client,
    page: SharedPage,
    /// The guard gives its page up when this is closed.
    _stream: UnixStream,
}

/// Measures launches.
pub(super) fn run(programs: &Programs) -> anyhow::Result<Vec<Figure>> {
    let testbed = Testbed::new(programs)?;
    let (plain, free, capped) = (
        testbed.share("plain", SHARE_BYTES)?,
        testbed.share("free", SHARE_BYTES)?,
        testbed.share("capped", SHARE_BYTES)?,
    );
    let bare = testbed.client_in_place(None)?;
    let plain = testbed.client_in_place(Some(&plain))?;
    let free = leased(&testbed, &free, Lease::Free)?;
    let capped = leased(&testbed, &capped, Lease::Capped(CAP))?;
    let pages = [free.page, capped.page];
    let line = format!("launch {LAUNCHES}");
    let mut clients = [bare, plain, free.client, capped.client];
    let mut times = [const { Vec::new() }; 4];
    for sample in 0..=SAMPLES {
        let middle = middle(&line, LAUNCHES, &mut clients)?;
        if sample > 0 {
            for (times, time) in times.iter_mut().zip(middle) {
                times.push(time);
            }
        }
    }
    // The costs are those of counted and of uncounted launches.
    let marks = |page: &SharedPage| {
        let streams = page.words().streams.iter();
        streams.map(|stream| stream.marked.load(Ordering::Relaxed)).sum::<u64>()
    };
    let [free, capped] = pages.each_ref().map(marks);
    ensure!(free == 0, "a free lease counted {free} launches");
    ensure!(capped > u64::from(LAUNCHES), "a capped lease counted {capped} launches only");
    let [bare, plain, free, capped] = &times;
    let added = |times: &[f64], to: &[f64]| -> Vec<f64> {
        times.iter().zip(to).map(|(time, to)| time - to).collect()
    };
    let what = |what: &str| format!("cuLaunchKernel, {what}");
    Ok(vec![
        Figure::new(what("simulated driver alone"), "ns", bare, Goal::None)?,
        Figure::new(what("added by the guard"), "ns", &added(plain, bare), Goal::None)?,
        Figure::new(what("added by a free lease"), "ns", &added(free, plain), Goal::Below(5.0))?,
        Figure::new(
            what("added by a capped lease, 16 launches for each mark"),
            "ns",
            &added(capped, plain),
            Goal::Below(80.0),
        )?,
    ])
}

/// Starts a client and gives it a lease.
fn leased(testbed: &Testbed, share: &Share, lease: Lease) -> anyhow::Result<Leased> {
    let listener = UnixListener::bind(share.socket()).context("listen for the guard")?;
    let agent = std::thread::spawn(move || -> anyhow::Result<_> {
        let (mut stream, _) = listener.accept()?;
        let mut hello = [0; SIZE];
        stream.read_exact(&mut hello)?;
        let hello = Frame::decode(&hello).context("the guard sent no frame")?;
        ensure!(hello.text() == LEASE_PAGE, "the guard asks for no lease");
        let (page, _, offer) = SharedPage::create()?;
        page.words().opens_at_ms.store(u64::MAX, Ordering::Relaxed);
        page.set(lease);
        offer.send(&stream)?;
        Ok((page, stream))
    });
    let client = testbed.client_in_place(Some(share))?;
    let joined = agent.join().map_err(|_| anyhow::anyhow!("the thread of the agent failed"))?;
    let (page, stream) = joined.context("give a client a lease")?;
    Ok(Leased { client, page, _stream: stream })
}
