use super::*;

#[test]
fn authorizer_denials_are_distinguished_from_admission() {
    let of_rights = [
        r#"pods "p" is forbidden: User "octavo" cannot get resource "pods" in API group "" in the namespace "team""#,
        r#"resourceclaims.resource.k8s.io "c" is forbidden: User "system:serviceaccount:octavo:s" cannot patch resource "resourceclaims/status" in API group "resource.k8s.io" in the namespace "team": RBAC: clusterrole.rbac.authorization.k8s.io "octavo" not found"#,
        r#"forbidden: User "system:anonymous" cannot get path "/version""#,
    ];
    for message in of_rights {
        assert!(is_access_denial(StatusCode::FORBIDDEN, message), "{message}");
        assert!(!is_access_denial(StatusCode::CONFLICT, message), "{message}");
    }
    let of_others = [
        r#"resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, requested: count/resourceclaims=1"#,
        r#"pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"#,
        r#"admission webhook "w" denied the request: User "octavo" cannot do that"#,
    ];
    for message in of_others {
        assert!(!is_access_denial(StatusCode::FORBIDDEN, message), "{message}");
    }
    assert!(is_access_denial(StatusCode::UNAUTHORIZED, "Unauthorized"));
}
