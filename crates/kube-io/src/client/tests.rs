use super::*;

fn options(path: &Path) -> ClientOptions {
    ClientOptions {
        kubeconfig: Some(path.to_owned()),
        context: None,
        user_agent: "octavo-test/1".to_owned(),
    }
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let Err(error) = connect(&options(Path::new("/nonexistent/config"))).await else {
        panic!("there is no such file");
    };
    assert!(error.to_string().contains("/nonexistent/config"), "{error}");
}

#[tokio::test]
async fn an_absent_server_is_no_error_before_the_first_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        clusters: [{name: a, cluster: {server: \"http://127.0.0.1:1\"}}]\n\
        contexts: [{name: a, context: {cluster: a, user: a, namespace: here}}]\n\
        users: [{name: a, user: {}}]\n";
    std::fs::write(&path, config).unwrap();
    let client = connect(&options(&path)).await.unwrap();
    assert_eq!(client.default_namespace(), "here");
    assert!(client.apiserver_version().await.is_err());

    let unknown = ClientOptions { context: Some("b".to_owned()), ..options(&path) };
    assert!(matches!(connect(&unknown).await, Err(ClientError::Kubeconfig { .. })));
    let agent = ClientOptions { user_agent: "a\nb".to_owned(), ..options(&path) };
    assert!(matches!(connect(&agent).await, Err(ClientError::UserAgent(_))));
}
