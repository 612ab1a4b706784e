//! `octavo health fence`, `release` and `retire`.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use octavo_api::node_health::{DeviceHealth, OrderWord};

use super::HealthStatus;
use crate::command::write;
use crate::connect::{ConnectArgs, Timeout, parse_timeout};
use crate::error::ViewError;
use crate::health::{self, HealthError, Ordered, Outcome};

/// Most characters of a reason.
const LONGEST_REASON: usize = 1024;

#[derive(Args, Clone, Debug)]
pub(super) struct OrderArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// Its GPUs, by name, index or UUID [default: all of the node]
    #[arg(value_name = "GPU")]
    gpus: Vec<String>,
    /// Why; it is kept with the order
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// Do not ask before all GPUs of the node are meant, or before GPUs retire
    #[arg(long)]
    yes: bool,
    /// How long to wait for the agent, or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_timeout)]
    timeout: Timeout,
    /// Do not wait for the agent
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn run(args: &OrderArgs, word: OrderWord) -> Result<HealthStatus, ViewError> {
    let connection = args.connect.connect().await?;
    let (client, node) = (&connection.client, args.node.as_str());
    if !args.yes {
        let health = connection.within(health::node(client, node)).await?;
        let gpus = health::devices(&health, &args.gpus)?;
        if let Some(question) = health::question(&health, &gpus, word) {
            if !io::stdin().is_terminal() {
                return Err(HealthError::Unconfirmed.into());
            }
            if !confirmed(&question, &mut io::stdin().lock(), &mut io::stderr().lock())? {
                return Err(HealthError::Declined.into());
            }
        }
    }
    let ordered = health::order(client, node, &args.gpus, word, &args.reason);
    let ordered = connection.within(ordered).await?;
    if args.no_wait {
        let ordered =
            ordered.iter().map(|Ordered { gpu, number, .. }| format!("{gpu} (order {number})"));
        write(&format!("ordered: {}\n", ordered.collect::<Vec<_>>().join(", ")))?;
        return Ok(HealthStatus::Done);
    }
    let outcomes = health::wait(client, node, ordered, args.timeout).await;
    write(&text(node, &outcomes))?;
    let is_done = outcomes.iter().all(|outcome| outcome.gpu.is_some());
    Ok(if is_done { HealthStatus::Done } else { HealthStatus::Waits })
}

/// A line for each order, and what to look at if the agent has not answered.
pub(super) fn text(node: &str, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { order, gpu } in outcomes {
        let state = match gpu {
            Some(gpu) => resulting(gpu),
            None => format!("order {} is not carried out yet", order.number),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {state}", order.gpu);
    }
    if outcomes.iter().any(|outcome| outcome.gpu.is_none()) {
        let _ = writeln!(
            text,
            "The agent of node {node} has not answered. Orders stay, and act once it does. Look at its pod: \
             `octavo doctor {node}`, and `kubectl get pods -A -l app.kubernetes.io/component=agent \
             --field-selector spec.nodeName={node}`."
        );
    }
    text
}

fn resulting(gpu: &DeviceHealth) -> String {
    let DeviceHealth { state, reason, message, .. } = gpu;
    match (reason, message) {
        (Some(reason), Some(message)) => format!("{state} ({reason}: {message})"),
        (Some(words), None) | (None, Some(words)) => format!("{state} ({words})"),
        (None, None) => state.clone(),
    }
}

/// Whether the answer to a question is yes.
fn confirmed(
    question: &str,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<bool> {
    output.write_all(question.as_bytes())?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Reads a reason.
fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err("it is empty: say why".to_owned()),
        length if length > LONGEST_REASON => {
            Err(format!("it has {length} characters, and may have {LONGEST_REASON}"))
        }
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_confirms() {
        let ask = |answer: &str| {
            let mut out = Vec::new();
            let is_confirmed = confirmed("Retire? ", &mut answer.as_bytes(), &mut out).unwrap();
            assert_eq!(out, b"Retire? ");
            is_confirmed
        };
        assert!(ask("y\n") && ask("YES\n"));
        assert!(!ask("n\n") && !ask("\n") && !ask("") && !ask("yesterday\n"));
    }

    #[test]
    fn a_reason_has_words() {
        assert_eq!(reason(" loud fan "), Ok("loud fan".to_owned()));
        assert!(reason("  ").is_err());
        assert!(reason(&"ä".repeat(1024)).is_ok());
        assert!(reason(&"ä".repeat(1025)).is_err());
    }
}
