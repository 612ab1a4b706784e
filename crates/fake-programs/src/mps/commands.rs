//! The daemon's commands and what they change.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use octavo_fake_gpu::mps::Limits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the daemon knows.
#[derive(Debug)]
pub(super) struct Service {
    percentage: f64,
    /// Memory limits in bytes, by the name of the device in the command.
    limits: BTreeMap<String, u64>,
    /// Clients by PID, with the UUID of their GPU.
    clients: Vec<(u32, String)>,
    /// Limits of the server that runs, which began with those of then; `None`: there are no clients.
    server: Option<ServerLimits>,
}

/// Limits of a server.
#[derive(Clone, Debug)]
struct ServerLimits {
    percentage: f64,
    limits: BTreeMap<String, u64>,
}

impl Default for Service {
    fn default() -> Self {
        Self { percentage: 100.0, limits: BTreeMap::new(), clients: Vec::new(), server: None }
    }
}

/// Whether a command goes to the privileged socket.
pub(super) fn is_privileged(command: &str) -> bool {
    let word = command.split_whitespace().next().unwrap_or_default();
    word.starts_with("set_") || matches!(word, "quit" | "start_server" | "terminate_client")
}

impl Service {
    /// Takes a client, and tells its limits.
    pub(super) fn enter(&mut self, pid: u32, gpu: &str) -> Limits {
        self.clients.push((pid, gpu.to_owned()));
        let Self { percentage, limits, .. } = self;
        let server = self.server.get_or_insert_with(|| ServerLimits {
            percentage: *percentage,
            limits: limits.clone(),
        });
        let memory_bytes = server.limits.get(gpu).copied();
        Limits { percentage: server.percentage, memory_bytes }
    }

    /// Forgets a client.
    pub(super) fn leave(&mut self, pid: u32, gpu: &str) {
        if let Some(place) = self.clients.iter().position(|(p, g)| *p == pid && g == gpu) {
            self.clients.swap_remove(place);
        }
        if self.clients.is_empty() {
            self.server = None;
        }
    }

    /// The answer to a command other than `quit`. `is_privileged`: it came by the privileged socket.
    pub(super) fn answer(&mut self, command: &str, by_privileged: bool) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        if is_privileged(command) && !by_privileged {
            return "Permission denied\n".to_owned();
        }
        match words.as_slice() {
            ["get_default_active_thread_percentage"] => self.shown_percentage(),
            ["set_default_active_thread_percentage", value] => {
                // A value out of range changes nothing, and is no error.
                if let Ok(value) = value.parse::<f64>()
                    && value > 0.0
                    && value <= 100.0
                {
                    self.percentage = value;
                }
                self.shown_percentage()
            }
            ["set_default_device_pinned_mem_limit", device, limit] => {
                if let Some(bytes) = bytes(limit) {
                    self.limits.insert((*device).to_owned(), bytes);
                }
                String::new()
            }
            ["set_active_thread_percentage", _server, value] => {
                if let (Some(server), Ok(value)) = (&mut self.server, value.parse()) {
                    server.percentage = value;
                }
                format!("{value}\n")
            }
            ["set_device_pinned_mem_limit", _server, device, limit] => {
                if let (Some(server), Some(bytes)) = (&mut self.server, bytes(limit)) {
                    server.limits.insert((*device).to_owned(), bytes);
                }
                String::new()
            }
            ["get_default_device_pinned_mem_limit", device] => {
                self.limits.get(*device).map(|bytes| shown(*bytes)).unwrap_or_default()
            }
            ["get_server_list"] if self.clients.is_empty() => String::new(),
            ["get_server_list"] => format!("{}\n", std::process::id()),
            ["get_client_list", _server] => {
                let mut list = String::new();
                for (pid, _) in &self.clients {
                    let _ = writeln!(list, "{pid}");
                }
                list
            }
            _ => format!("Unknown command \"{command}\"\n"),
        }
    }

    fn shown_percentage(&self) -> String {
        format!("{:.1}\n", self.percentage)
    }
}

/// A limit such as `512M`, in bytes.
fn bytes(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        'K' => KIB,
        'M' => MIB,
        'G' => GIB,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

/// A limit in the largest unit that divides it.
fn shown(bytes: u64) -> String {
    let (unit, name) = [(GIB, "G"), (MIB, "M"), (KIB, "K")]
        .into_iter()
        .find(|(unit, _)| bytes.is_multiple_of(*unit))
        .unwrap_or((1, ""));
    format!("{}{name}\n", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_answer_as_those_of_driver_580() {
        let mut service = Service::default();
        let mut ask = |command: &str| service.answer(command, true);
        assert_eq!(ask("get_default_active_thread_percentage"), "100.0\n");
        assert_eq!(ask("set_default_active_thread_percentage 25"), "25.0\n");
        assert_eq!(ask("set_default_active_thread_percentage 120"), "25.0\n");
        assert_eq!(ask("set_default_device_pinned_mem_limit GPU-a 1024M"), "");
        assert_eq!(ask("get_default_device_pinned_mem_limit GPU-a"), "1G\n");
        assert_eq!(ask("get_default_device_pinned_mem_limit 0"), "");
        assert_eq!(ask("nonsense"), "Unknown command \"nonsense\"\n");
        assert_eq!(ask("get_server_list"), "");
        let limits = service.enter(12, "GPU-a");
        assert_eq!(limits, Limits { percentage: 25.0, memory_bytes: Some(GIB) });
        assert_eq!(service.answer("get_client_list 1", false), "12\n");
        // A server keeps its limits until a command for it, or its end.
        service.answer("set_default_active_thread_percentage 50", true);
        assert_eq!(service.enter(13, "GPU-a"), limits);
        service.answer("set_active_thread_percentage 1 50", true);
        assert_eq!(service.enter(14, "GPU-a"), Limits { percentage: 50.0, ..limits });
        service.leave(13, "GPU-a");
        service.leave(14, "GPU-a");
        let denied = service.answer("set_default_active_thread_percentage 50", false);
        assert_eq!(denied, "Permission denied\n");
        service.leave(12, "GPU-a");
        assert_eq!(service.answer("get_client_list 1", false), "");
    }
}
