use octavo_api::health_policy::TemplateSpec;

use super::*;

fn template(kind: &str) -> TemplateSpec {
    TemplateSpec {
        remedies: vec![Remedy::Reboot],
        api_version: "r.example/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "ops".to_owned(),
        name: "t".to_owned(),
    }
}

impl Bench {
    fn set_template(&mut self, template: Option<TemplateSpec>) {
        self.facts.policies.get_mut("a").unwrap().template = template;
    }

    /// The template of which objects may exist by the status, and whether they are to go.
    fn noted(&mut self) -> Option<(String, bool)> {
        self.round();
        let plan = self.round();
        let noted = self.facts.policies["a"].status.template.clone()?;
        assert_eq!(plan.remediations["a"].template, noted);
        Some((noted.kind, plan.remediations["a"].is_in_use))
    }
}

#[test]
fn a_template_is_noted_until_none_of_its_objects_is_left() {
    let mut bench = Bench::new(1, 1);
    assert_eq!(bench.noted(), None);
    bench.set_template(Some(template("OneTemplate")));
    let plan = bench.round();
    assert!(plan.remediations.is_empty(), "its name is written first");
    assert_eq!(bench.noted(), Some(("OneTemplate".to_owned(), true)));
    bench.set_template(Some(template("TwoTemplate")));
    assert_eq!(bench.noted(), Some(("OneTemplate".to_owned(), false)));
    bench.restart();
    assert_eq!(
        bench.noted(),
        Some(("OneTemplate".to_owned(), false)),
        "also for another controller"
    );
    bench.memory.cleared.insert("a".to_owned(), template("OneTemplate"));
    assert_eq!(bench.noted(), Some(("TwoTemplate".to_owned(), true)));
    let policy = bench.facts.policies["a"].policy.clone();
    bench.facts.policies.get_mut("a").unwrap().policy = Err("budget: no".to_owned());
    assert_eq!(bench.noted(), Some(("TwoTemplate".to_owned(), false)));
    bench.facts.policies.get_mut("a").unwrap().policy = policy;
    assert_eq!(bench.noted(), Some(("TwoTemplate".to_owned(), true)));
    bench.set_template(None);
    bench.memory.cleared.insert("a".to_owned(), template("TwoTemplate"));
    assert_eq!(bench.noted(), None);
    // What was known of the former objects says nothing of new ones.
    bench.set_template(Some(template("TwoTemplate")));
    bench.noted();
    bench.set_template(None);
    assert_eq!(bench.noted(), Some(("TwoTemplate".to_owned(), false)));
}
