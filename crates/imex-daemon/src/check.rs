//! `octavo imex-daemon check`: the probe of a daemon pod.

use anyhow::bail;

use crate::args::CheckArgs;
use crate::ctl::{Answer, Ctl};
use crate::slots;
use crate::tls;

/// Succeeds if the service is ready, or if there is none since the node has no clique.
pub(crate) async fn check(args: &CheckArgs) -> anyhow::Result<()> {
    if args.clique().is_none() {
        return Ok(());
    }
    let ctl = Ctl { program: args.ctl_program.clone(), config_file: args.config_file() };
    let answer = ctl.ask().await;
    if answer != Answer::Ready
        && let Some(folder) = args.tls_folder()
    {
        // Without a certificate the service is not started. All have the name of the first slot.
        tls::verify(folder, &slots::name(0)).map_err(anyhow::Error::msg)?;
    }
    match answer {
        Answer::Ready => Ok(()),
        Answer::State(state) => bail!("nvidia-imex is not ready: its state is {state}"),
        Answer::Unavailable(reason) => bail!("nvidia-imex does not answer: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(clique: Option<&str>) -> CheckArgs {
        CheckArgs {
            clique_id: clique.map(str::to_owned),
            folder: "/no/such/folder".into(),
            ctl_program: "/no/such/ctl".into(),
            tls_folder: None,
        }
    }

    #[tokio::test]
    async fn a_node_without_a_clique_passes() {
        assert!(check(&args(None)).await.is_ok());
        assert!(check(&args(Some(""))).await.is_ok());
    }

    #[tokio::test]
    async fn a_service_that_cannot_be_asked_fails_with_the_reason() {
        let error = check(&args(Some("c.1"))).await.unwrap_err().to_string();
        assert!(error.starts_with("nvidia-imex does not answer: /no/such/ctl"), "{error}");
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_used_is_the_reason() {
        let args = CheckArgs { tls_folder: Some("/no/such/tls".into()), ..args(Some("c.1")) };
        let error = check(&args).await.unwrap_err().to_string();
        assert!(error.starts_with("/no/such/tls/tls.crt cannot be read"), "{error}");
    }
}
