//! The agent as its own process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A running agent; killed when dropped.
pub(crate) struct AgentProcess {
    child: Child,
    admin: String,
}

impl AgentProcess {
    /// Starts `octavo-agent --config CONFIG`, the program beside `octavo`.
    pub(crate) fn start(octavo: &Path, config: &Path) -> anyhow::Result<Self> {
        Self::start_to(octavo, config, Stdio::null())
    }

    /// Starts it with its log in a file.
    pub(crate) fn start_with_log(octavo: &Path, config: &Path, log: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::create(log).with_context(|| format!("make {}", log.display()))?;
        Self::start_to(octavo, config, file.into())
    }

    fn start_to(octavo: &Path, config: &Path, log: Stdio) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let admin = format!("127.0.0.1:{port}");
        let program = octavo.with_file_name("octavo-agent");
        let child = Command::new(&program)
            .args(["--admin-address", &admin, "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { child, admin })
    }

    /// Address of its admin port.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until /readyz answers 200.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.answers("/readyz").unwrap_or(false) {
            if Instant::now() > deadline {
                bail!("the agent was not ready within 10 s");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// How long the driver has taken so far to make and destroy MIG instances, in milliseconds, as
    /// the agent counts it.
    pub(crate) fn driver_milliseconds(&self) -> anyhow::Result<f64> {
        let mut text = String::new();
        self.ask("/metrics")?.read_to_string(&mut text).context("read the agent's metrics")?;
        let sums = text.lines().filter_map(|line| {
            let (_, value) =
                line.strip_prefix("octavo_agent_mig_duration_seconds_sum")?.rsplit_once(' ')?;
            value.parse::<f64>().ok()
        });
        Ok(sums.sum::<f64>() * 1_000.0)
    }

    fn answers(&self, path: &str) -> std::io::Result<bool> {
        let mut line = String::new();
        self.ask(path)?.read_line(&mut line)?;
        Ok(line.split(' ').nth(1) == Some("200"))
    }

    fn ask(&self, path: &str) -> std::io::Result<BufReader<std::net::TcpStream>> {
        let mut stream = std::net::TcpStream::connect(&self.admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes())?;
        Ok(BufReader::new(stream))
    }

    /// Ends the agent as the kubelet would end its pod.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("the agent did not end within 10 s of SIGTERM");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
