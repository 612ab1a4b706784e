//! Shrinks a case that shows a difference, so that people can read it.

use serde_json::Value;

use crate::case::Case;
use crate::ours::is_readable;

/// The smallest case, obtained by removing parts, for which `shows` still holds.
pub(crate) fn shrink(case: &Case, mut shows: impl FnMut(&Case) -> bool) -> Case {
    let mut best = serde_json::to_value(case).unwrap();
    let mut still_shows = |candidate: &Value| {
        serde_json::from_value::<Case>(candidate.clone())
            .is_ok_and(|case| is_readable(&case) && shows(&case))
    };
    loop {
        let mut smaller = false;
        let mut paths = Vec::new();
        removable(&best, "", &mut paths);
        // Back to front, so that earlier paths stay valid.
        for path in paths.iter().rev() {
            let Some(candidate) = without(&best, path) else { continue };
            if let Some(shown) = candidate.into_iter().find(|candidate| still_shows(candidate)) {
                best = shown;
                smaller = true;
            }
        }
        if !smaller {
            return serde_json::from_value(best).unwrap();
        }
    }
}

/// JSON pointers to every element and member, parents before children.
fn removable(value: &Value, at: &str, paths: &mut Vec<String>) {
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                paths.push(format!("{at}/{index}"));
                removable(element, &format!("{at}/{index}"), paths);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                paths.push(path.clone());
                removable(member, &path, paths);
            }
        }
        _ => {}
    }
}

/// The value without the part at `path`. For a slice there is a second candidate with the pool's
/// slice count adjusted.
fn without(value: &Value, path: &str) -> Option<Vec<Value>> {
    let (parent, last) = path.rsplit_once('/')?;
    let mut smaller = value.clone();
    let removed = match smaller.pointer_mut(parent)? {
        Value::Array(elements) => {
            let index: usize = last.parse().ok()?;
            if index >= elements.len() {
                return None;
            }
            elements.remove(index)
        }
        Value::Object(members) => members.remove(&last.replace("~1", "/").replace("~0", "~"))?,
        _ => return None,
    };
    if parent != "/slices" {
        return Some(vec![smaller]);
    }
    let mut adjusted = smaller.clone();
    for slice in adjusted.pointer_mut("/slices")?.as_array_mut()? {
        let same = |member: &str| slice.pointer(member) == removed.pointer(member);
        if same("/spec/driver") && same("/spec/pool/name") && same("/spec/pool/generation") {
            let count = slice.pointer_mut("/spec/pool/resourceSliceCount")?;
            *count = (count.as_i64()? - 1).into();
        }
    }
    Some(vec![adjusted, smaller])
}
