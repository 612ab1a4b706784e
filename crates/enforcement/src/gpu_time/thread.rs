//! The thread that gives leases: waits for doorbells, ends of processes, commands and time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::sync::Notify;

use super::clients::Client;
use super::gpus::Gpus;
use super::{ClientId, Command};

/// Events taken at once.
const EVENTS: usize = 64;

/// Shortest time between two wake-ups by processes. A process that rings without end costs little.
const MIN_INTERVAL: Duration = Duration::from_micros(100);

/// How often a process is looked at that has closed its doorbell.
const DEAF_INTERVAL: Duration = Duration::from_millis(20);

/// Number of the event counter by which commands are announced.
const COMMANDS: u64 = u64::MAX;

/// Number of the timer. The timeout of `epoll_wait` is too coarse: whole milliseconds.
const TIMER: u64 = u64::MAX - 1;

/// Set in the number of a process's end.
const END: u64 = 1 << 63;

/// The thread, before it runs.
pub(super) struct LeaseThread {
    commands: Receiver<Command>,
    wake: OwnedFd,
    timer: OwnedFd,
    epoll: OwnedFd,
    began: Instant,
    gpus: Gpus,
    /// Notified when a process needs memory that others have.
    needs: Arc<Notify>,
}

impl LeaseThread {
    pub(super) fn new(
        commands: Receiver<Command>,
        wake: OwnedFd,
        needs: Arc<Notify>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for (file, number) in [(&wake, COMMANDS), (&timer, TIMER)] {
            epoll::add(&epoll, file, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        }
        let (began, gpus) = (Instant::now(), Gpus::default());
        Ok(Self { commands, wake, timer, epoll, began, gpus, needs })
    }

    /// Runs until no commands can come any more. Then each process launches whenever it wants, as after the end of its client.
    pub(super) fn run(mut self) {
        let mut woken = Instant::now();
        while self.take_commands() {
            let now = self.now();
            self.gpus.look_at_deaf(now);
            self.gpus.step(now);
            let events = match self.wait() {
                Ok(events) => events,
                Err(error) => {
                    tracing::error!(%error, "leases of GPU time end: the node's kernel refuses to wait for events");
                    break;
                }
            };
            if events.iter().any(|event| *event < TIMER) {
                // A process has woken the thread, and the next ones wait for a moment.
                std::thread::sleep(MIN_INTERVAL.saturating_sub(woken.elapsed()));
                woken = Instant::now();
            }
            for event in events {
                self.take_event(event);
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns whether more can come.
    fn take_commands(&mut self) -> bool {
        loop {
            let now = self.now();
            match self.commands.try_recv() {
                Ok(Command::Shares(shares)) => self.gpus.set_shares(shares, now),
                Ok(Command::Join(id, client)) => self.join(id, client),
                Ok(Command::Leave(id)) => self.leave(id),
                Ok(Command::Times(sender)) => {
                    // The asker may have gone.
                    let _ = sender.send(self.gpus.times(now));
                }
                Ok(Command::Memory(command)) => self.gpus.take_memory_command(command, now),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn join(&mut self, id: ClientId, client: Client) {
        let add = |file: &OwnedFd, number| {
            epoll::add(&self.epoll, file, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
        };
        let added = add(&client.doorbell, id).and_then(|()| add(&client.process, id | END));
        if let Err(error) = added {
            tracing::warn!(share = client.share, %error, "a process has no leases of GPU time: the kernel refuses to watch it");
            return;
        }
        self.gpus.join(id, client, self.now());
    }

    fn leave(&mut self, id: ClientId) {
        if let Some(client) = self.gpus.leave(id, self.now()) {
            // They are closed with the client; the process may have others of the same file.
            let _ = epoll::delete(&self.epoll, &client.process);
            let _ = epoll::delete(&self.epoll, &client.doorbell);
        }
    }

    /// Waits until something happens or a step is due. Returns the numbers of what happened.
    fn wait(&self) -> io::Result<Vec<u64>> {
        let has_deaf = self.gpus.clients.values().any(|client| client.is_deaf);
        let due = self.gpus.due().map(|due| Duration::from_nanos(due.saturating_sub(self.now())));
        let limit = due.into_iter().chain(has_deaf.then_some(DEAF_INTERVAL)).min();
        // Zero would stop the timer.
        let limit = limit.map(|limit| limit.max(Duration::from_nanos(1)));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok()).unwrap_or_default();
        let once = Itimerspec { it_interval: Timespec::default(), it_value: limit };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        let mut space = [MaybeUninit::uninit(); EVENTS];
        match epoll::wait(&self.epoll, &mut space, None) {
            Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_event(&mut self, number: u64) {
        if number == COMMANDS || number == TIMER {
            let file = if number == TIMER { &self.timer } else { &self.wake };
            // It is read to be quiet again. What it announces is looked for in any case.
            let _ = rustix::io::read(file, &mut [0; 8]);
        } else if number & END != 0 {
            self.leave(number & !END);
        } else if let Some(client) = self.gpus.clients.get_mut(&number) {
            let rung = rustix::io::read(&client.doorbell, &mut [0; 4096]);
            if matches!(rung, Ok(0)) || rung.is_err_and(|error| error != rustix::io::Errno::AGAIN) {
                client.is_deaf = true;
                // It would be readable for ever.
                let _ = epoll::delete(&self.epoll, &client.doorbell);
            }
            self.gpus.look(number, self.now());
            if self.gpus.has_needs(number) {
                self.needs.notify_one();
            }
        }
    }
}
