//! Kubeconfig files of the lab's clients.

use std::net::SocketAddrV4;
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::cluster::layout::Layout;
use crate::cluster::pki::{self, CLIENTS};

/// A client's credential.
pub(crate) enum Credential<'a> {
    /// Certificate and key with this stem in the key folder, both inlined.
    Certificate(&'a str),
    /// A token file, which clients read repeatedly.
    TokenFile(&'a Path),
}

/// Writes the kubeconfig of every client with a certificate. The user's kubeconfig is the
/// administrator's.
pub(crate) fn write_all(layout: &Layout, apiserver: SocketAddrV4) -> anyhow::Result<()> {
    for client in CLIENTS {
        let path = match client.stem {
            "admin" => layout.kubeconfig(),
            stem => layout.client_kubeconfig(stem),
        };
        write(&path, layout, apiserver, &Credential::Certificate(client.stem))?;
    }
    Ok(())
}

/// Writes one kubeconfig. Everything except a token is inlined, so the file can be copied.
pub(crate) fn write(
    path: &Path,
    layout: &Layout,
    apiserver: SocketAddrV4,
    credential: &Credential<'_>,
) -> anyhow::Result<()> {
    let user = match credential {
        Credential::Certificate(stem) => json!({
            "client-certificate-data": inline(layout, &format!("{stem}.crt"))?,
            "client-key-data": inline(layout, &format!("{stem}.key"))?,
        }),
        Credential::TokenFile(file) => json!({ "tokenFile": file }),
    };
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "octavo-lab", "cluster": {
            "server": format!("https://{apiserver}"),
            "certificate-authority-data": inline(layout, "ca.crt")?,
        }}],
        "users": [{ "name": "octavo-lab", "user": user }],
        "contexts": [{ "name": "octavo-lab", "context": {
            "cluster": "octavo-lab", "user": "octavo-lab",
        }}],
        "current-context": "octavo-lab",
    });
    let text = serde_saphyr::to_string(&document).context("write a kubeconfig as YAML")?;
    pki::write_secret(path, &text)
}

/// A client for the API server that the kubeconfig at `path` names.
pub(crate) async fn client(path: &Path) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(config(path).await?).context("make a client of the API server")
}

/// The client configuration of the kubeconfig at `path`, without a proxy.
pub(crate) async fn config(path: &Path) -> anyhow::Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(path)
        .with_context(|| format!("read the kubeconfig {}", path.display()))?;
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("use the kubeconfig {}", path.display()))?;
    // The lab is on loopback, which a proxy from the environment cannot reach.
    config.proxy_url = None;
    Ok(config)
}

fn inline(layout: &Layout, name: &str) -> anyhow::Result<Value> {
    let path = layout.pki_file(name);
    let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    // `ByteString` writes itself in base64.
    serde_json::to_value(ByteString(bytes)).context("write a certificate in base64")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const APISERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 20123);

    #[test]
    fn every_client_gets_a_kubeconfig_that_carries_all_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        pki::create(&layout.pki(), None).unwrap();
        write_all(&layout, APISERVER).unwrap();
        for path in [layout.kubeconfig(), layout.client_kubeconfig("scheduler")] {
            let config = Kubeconfig::read_from(&path).unwrap();
            let cluster = config.clusters[0].cluster.as_ref().unwrap();
            assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:20123"));
            let authority = cluster.certificate_authority_data.as_deref().unwrap();
            assert!(authority.len() > 200);
            let user = config.auth_infos[0].auth_info.as_ref().unwrap();
            assert!(user.client_certificate_data.is_some() && user.client_key_data.is_some());
            assert_eq!(config.current_context.as_deref(), Some("octavo-lab"));
        }
    }

    #[test]
    fn a_node_s_kubeconfig_names_its_token_file_and_no_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        pki::create(&layout.pki(), None).unwrap();
        let (path, token) = (folder.path().join("config"), folder.path().join("token"));
        write(&path, &layout, APISERVER, &Credential::TokenFile(&token)).unwrap();
        let config = Kubeconfig::read_from(&path).unwrap();
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.token_file.as_deref(), token.to_str());
        assert!(user.client_certificate_data.is_none());
    }

    #[tokio::test]
    async fn no_client_of_the_lab_goes_through_a_proxy() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        pki::create(&layout.pki(), None).unwrap();
        write_all(&layout, APISERVER).unwrap();
        let path = layout.kubeconfig();
        // The effect of `HTTPS_PROXY` on a client, without a change of this process's environment.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(
            &path,
            text.replace("server:", "proxy-url: http://127.0.0.1:9\n    server:"),
        )
        .unwrap();
        let read = Kubeconfig::read_from(&path).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.proxy_url.as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(config(&path).await.unwrap().proxy_url, None);
    }
}
