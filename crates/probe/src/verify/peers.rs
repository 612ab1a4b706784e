//! The check of peers: memory of one GPU is copied to another one and back.

use std::time::{Duration, Instant};

use super::gpu::{Buffer, Stop, TestGpu};
use super::memory::by_second;
use super::patterns::Pattern;
use super::report::{Check, CheckName, Numbers, Peer, PeerNumbers, TestedGpu};
use crate::driver::{Code, CudaError};

/// Bytes of the first copy.
const FIRST_BYTES: u64 = 1 << 20;
/// Bytes of the largest copy.
const MAX_BYTES: u64 = 256 << 20;
/// Copies grow while all work with them takes less.
const COPY_TIME: Duration = Duration::from_millis(50);
/// Numbers of a check's result.
const RESULT_BYTES: usize = 32;

/// Copies between each two of the GPUs. Which of the two is at fault is not known, so both have failed. Returns a check for each GPU.
pub(super) fn check(gpus: &[TestedGpu], opened: &[TestGpu<'_>]) -> Vec<Check> {
    let mut found = vec![(PeerNumbers::default(), None); gpus.len()];
    'pairs: for (one, here) in opened.iter().enumerate() {
        for (other, there) in opened.iter().enumerate().skip(one + 1) {
            let result = check_pair(here, there);
            for (of, with) in [(one, other), (other, one)] {
                let (numbers, stopped): &mut (PeerNumbers, Option<Check>) = &mut found[of];
                let uuid = &gpus[with].uuid;
                match &result {
                    Ok(peer) => numbers.peers.push(Peer { uuid: uuid.clone(), ..peer.clone() }),
                    Err(stop) => {
                        let check = stop.check(CheckName::Peers, None);
                        let why = check.message.as_deref().unwrap_or_default();
                        let message = Some(format!("with {uuid}: {why}"));
                        stopped.get_or_insert(Check { message, ..check });
                    }
                }
            }
            if matches!(result, Err(Stop::Hang { .. })) {
                break 'pairs;
            }
        }
    }
    found.into_iter().map(|(numbers, stopped)| judge(numbers, stopped, gpus.len() - 1)).collect()
}

/// The check of a GPU with so many peers.
fn judge(numbers: PeerNumbers, stopped: Option<Check>, peers: usize) -> Check {
    let wrong = numbers.peers.iter().filter(|peer| peer.mismatches > 0);
    let wrong: Vec<&str> = wrong.map(|peer| &*peer.uuid).collect();
    let message = format!("copies from or to these are wrong: {}", wrong.join(", "));
    let (is_wrong, is_complete) = (!wrong.is_empty(), numbers.peers.len() == peers);
    let numbers = Some(Numbers::Peers(numbers));
    match stopped {
        _ if is_wrong => Check::failed(CheckName::Peers, message, numbers),
        Some(check) => Check { numbers, ..check },
        None if is_complete => Check::passed(CheckName::Peers, numbers),
        None => Check {
            numbers,
            ..Check::not_tried(CheckName::Peers, "copies between other GPUs do not end")
        },
    }
}

/// Copies from one GPU to the other and back, and compares on both. The UUID is left open.
fn check_pair(one: &TestGpu<'_>, other: &TestGpu<'_>) -> Result<Peer, Stop> {
    let is_direct = connect(one, other)? && connect(other, one)?;
    other.select()?;
    let (found_there, there) = (Buffer::with(other, &[0; RESULT_BYTES])?, room(other)?);
    one.select()?;
    let (here, back, found_here) = (room(one)?, room(one)?, Buffer::with(one, &[0; RESULT_BYTES])?);
    let mut bytes = FIRST_BYTES;
    loop {
        let (began, pattern) = (Instant::now(), Pattern::random(bytes));
        one.fill((here.pointer, bytes), 0, pattern)?;
        let forth = one.copy((there.pointer, other), (here.pointer, one), bytes)?;
        other.select()?;
        other.check((there.pointer, bytes), 0, pattern, &found_there)?;
        let return_time = other.copy((back.pointer, one), (there.pointer, other), bytes)?;
        one.select()?;
        one.check((back.pointer, bytes), 0, pattern, &found_here)?;
        if bytes < MAX_BYTES && began.elapsed() < COPY_TIME {
            bytes *= 2;
            continue;
        }
        let here = count(&found_here.read()?);
        other.select()?;
        let mismatches = here + count(&found_there.read()?);
        let rate = by_second(2 * bytes, forth + return_time);
        return Ok(Peer { uuid: String::new(), is_direct, bytes, mismatches, rate });
    }
}

fn room<'a>(gpu: &'a TestGpu<'a>) -> Result<Buffer<'a>, CudaError> {
    Buffer::allocate(gpu, MAX_BYTES)
}

/// Lets a GPU reach the memory of another one, if it can. Its context is current afterwards.
fn connect(from: &TestGpu<'_>, to: &TestGpu<'_>) -> Result<bool, CudaError> {
    from.select()?;
    let cuda = from.context.cuda;
    let mut can = 0;
    cuda.can_access_peer(&mut can, from.context.device, to.context.device)?;
    if can == 0 {
        return Ok(false);
    }
    match cuda.enable_peer_access(to.context.context, 0) {
        Err(error) if error.code() != Some(Code::PEER_ACCESS_ALREADY_ENABLED) => Err(error),
        _ => Ok(true),
    }
}

/// The count at the beginning of a check's result.
fn count(result: &[u8]) -> u64 {
    result.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
