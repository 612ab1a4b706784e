//! A folder with a simulated GPU, the guard, and shares, and programs that see it as a container would.
//!
//! ```text
//! <folder>/real/     libcuda.so.1 (simulated), machine.yaml, chip/   --> /run/octavo/real
//! <folder>/twin/     the same with a chip of its own
//! <folder>/guard/    liboctavo_guard.so, libcuda.so.1 (proxy)        --> /run/octavo/guard
//! <folder>/<share>/  <claim>_<share>/{limits,state}                  --> /run/octavo/shares
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use octavo_embedded::guard::{CUDA_HOOKS, LIBRARY, NAME};
use octavo_fake_gpu::{Clock, FakeGpu, ProcessHandle};
use octavo_guard_abi::limits::Terms;
use octavo_guard_abi::{GUARD, LIMITS_FILE, REAL, SOCKET_FILE, STATE_FILE, names, state, uuid};
use octavo_machine::derive_uuid;
use octavo_proxy::Plan;
use tempfile::TempDir;

use super::Programs;
use super::client::Client;

/// Memory of a context, on the chip and in the ledger.
pub(crate) const CONTEXT_BYTES: u64 = CONTEXT_MIB << 20;
const CONTEXT_MIB: u64 = 16;

/// Generation of the shares' files; any number but zero.
const GENERATION: u64 = 1;

const SONAME: &str = "libcuda.so.1";

/// The machine. Kernels take no time, so a launch costs only its call.
const MACHINE: &str = include_str!("../../../../machines/hgx-h200.yaml");

/// Mounts the folders where containers have them, and becomes the client.
const ENTER: &str = "mount -t tmpfs octavo /run
mkdir -p /run/octavo/real /run/octavo/guard /run/octavo/shares
mount --bind \"$1\" /run/octavo/real
mount --bind \"$2\" /run/octavo/guard
mount --bind \"$3\" /run/octavo/shares
for share in /run/octavo/shares/*; do
  [ -d \"$share\" ] || continue
  mount --bind \"$share\" \"$share\"
  mount -o remount,bind,ro \"$share\"
  mount --bind \"$3/${share##*/}/state\" \"$share/state\"
done
exec \"$4\"";

/// The folder and its contents.
#[derive(Debug)]
pub(crate) struct Testbed {
    folder: TempDir,
    client: PathBuf,
    gpu: [u8; 16],
}

/// A share of the testbed's GPU.
#[derive(Debug)]
pub(crate) struct Share {
    shares: PathBuf,
    state: PathBuf,
    socket: PathBuf,
}

/// The sums of a share's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Processes that have a slot.
    pub(crate) processes: u64,
    /// Bytes in all slots.
    pub(crate) bytes: u64,
}

impl Testbed {
    pub(crate) fn new(programs: &Programs) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ow").tempdir().context("make a folder")?;
        let path = folder.path();
        let guard = path.join("guard");
        for folder in [&guard, &path.join("none")] {
            fs::create_dir(folder)?;
        }
        let driver = fs::read(&programs.driver).context("read the simulated driver")?;
        let simulation = format!(
            "simulation: {{contextMib: {CONTEXT_MIB}, shortestKernelNanos: 0, longestKernelNanos: 0}}"
        );
        for real in ["real", "twin"].map(|name| path.join(name)) {
            fs::create_dir(&real)?;
            fs::write(real.join(SONAME), &driver)?;
            fs::write(real.join("machine.yaml"), format!("{MACHINE}\n{simulation}\n"))?;
        }
        let hooks: BTreeSet<&str> = CUDA_HOOKS.iter().copied().collect();
        let plan = Plan {
            hooks: &hooks,
            is_suspicious: names::is_suspicious,
            soname: SONAME,
            guard: Path::new(GUARD),
            real: &Path::new(REAL).join(SONAME),
        };
        let proxy = octavo_proxy::write(&driver, &plan).context("make the proxy")?;
        fs::write(guard.join(NAME), LIBRARY)?;
        fs::write(guard.join(SONAME), proxy.bytes)?;
        // Every client sees the machine in the same folder, from which its GPUs have their names.
        let gpu = uuid::parse(&derive_uuid(REAL, 0)).context("the GPU has no UUID")?;
        Ok(Self { client: programs.client.clone(), folder, gpu })
    }

    /// Makes a share as the agent does.
    pub(crate) fn share(&self, name: &str, memory_bytes: u64) -> anyhow::Result<Share> {
        let shares = self.folder.path().join(name);
        let folder = shares.join(format!("{name}_0"));
        fs::create_dir_all(&folder)?;
        let terms = Terms {
            generation: GENERATION,
            gpu: self.gpu,
            memory_bytes,
            context_bytes: CONTEXT_BYTES,
            ..Terms::default()
        };
        fs::write(folder.join(LIMITS_FILE), terms.file())?;
        let state = folder.join(STATE_FILE);
        let mut bytes = vec![0; state::SIZE];
        let header = state::header(GENERATION);
        bytes.get_mut(..header.len()).context("the state is too small")?.copy_from_slice(&header);
        fs::write(&state, bytes)?;
        Ok(Share { shares, state, socket: folder.join(SOCKET_FILE) })
    }

    /// Starts a client, with memory enforcement if it gets a share.
    pub(crate) fn client(&self, share: Option<&Share>) -> anyhow::Result<Client> {
        self.client_on("real", share, Command::new("unshare"))
    }

    /// Starts a client on the first processor, so that clients measured in turn share one
    /// processor.
    pub(crate) fn client_in_place(&self, share: Option<&Share>) -> anyhow::Result<Client> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0", "unshare"]);
        self.client_on("real", share, command)
    }

    /// Starts a client on the twin of the GPU: a process in the share's ledger that does not load
    /// the measured GPU.
    pub(crate) fn client_on_twin(&self, share: &Share) -> anyhow::Result<Client> {
        self.client_on("twin", Some(share), Command::new("unshare"))
    }

    fn client_on(
        &self,
        real: &str,
        share: Option<&Share>,
        mut command: Command,
    ) -> anyhow::Result<Client> {
        let folder = |name| self.folder.path().join(name);
        command.arg("--mount");
        // A user who is not root becomes root in a user namespace, and may mount there.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let none = folder("none");
        command.args(["sh", "-ec", ENTER, "sh"]).args([&folder(real), &folder("guard")]);
        command.arg(share.map_or(&none, |share| &share.shares)).arg(&self.client);
        let seen =
            share.map_or(Path::new(REAL), |_| Path::new(GUARD).parent().unwrap_or(Path::new("/")));
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", seen);
        Client::start(command)
    }

    /// A file of that name that clients can write.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A read-only view of the GPU that does not count as use. A client must have used the GPU
    /// before.
    pub(crate) fn chip(&self) -> anyhow::Result<Observer> {
        let folder = self.folder.path().join("real");
        let chip =
            FakeGpu::existing(&folder, 0, Clock::Virtual).context("open the simulated GPU")?;
        let capacity = chip.capacity();
        let member = chip.attach().context("open the simulated GPU")?;
        Ok(Observer { member, capacity })
    }
}

/// Reads the GPU's allocated memory.
#[derive(Debug)]
pub(crate) struct Observer {
    member: ProcessHandle,
    capacity: u64,
}

impl Observer {
    /// Bytes that all processes have together, at one moment.
    pub(crate) fn used(&self) -> u64 {
        self.capacity - self.member.free()
    }
}

impl Share {
    /// Path of the agent's socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Reads the ledger as the agent does.
    pub(crate) fn ledger(&self) -> anyhow::Result<Ledger> {
        let bytes = fs::read(&self.state)?;
        let slots = state::slots(&bytes, GENERATION);
        let slots = slots.map_err(|damage| anyhow::anyhow!("the state is damaged: {damage:?}"))?;
        Ok(slots.fold(Ledger { processes: 0, bytes: 0 }, |sum, slot| Ledger {
            processes: sum.processes + 1,
            bytes: sum.bytes + slot.used_bytes,
        }))
    }

    /// Fails if the ledger has other sums.
    pub(crate) fn expect(&self, wanted: Ledger) -> anyhow::Result<()> {
        let found = self.ledger()?;
        ensure!(found == wanted, "the ledger has {found:?}, expected {wanted:?}");
        Ok(())
    }
}
