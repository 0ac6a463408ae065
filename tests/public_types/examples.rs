//! The examples say which features they need. In the repository the crate is its own development
//! dependency, with the default features and `axum`. The package has no such dependency: an example
//! that does not say what it needs fails to build there without these features, or answers each
//! request with 500.

use std::fs;
use std::path::Path;

use crate::sources::files_in;

/// What only a feature has, or reads.
const OF_FEATURES: [(&str, &[&str]); 4] = [
    (
        "axum",
        &[
            "Operator",
            "into_make_service_with_connect_info",
            "expose_decisions",
        ],
    ),
    ("memory", &["MemoryStore"]),
    ("metrics", &["Metrics"]),
    ("redis", &["RedisStore"]),
];

#[test]
fn an_example_says_which_features_it_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let examples = root.join("examples");
    let mut needed = 0;
    let mut wrong = Vec::new();
    for file in files_in(&examples) {
        let example = name_of(file.strip_prefix(&examples).unwrap());
        let text = fs::read_to_string(&file).unwrap();
        for (feature, words) in OF_FEATURES {
            if words.iter().any(|word| text.contains(word)) {
                needed += 1;
                if !says(&manifest, example, feature) {
                    wrong.push(format!("{example}: {feature}"));
                }
            }
        }
    }
    assert!(needed >= 16, "found only {needed}");
    assert!(wrong.is_empty(), "without required-features: {wrong:?}");
}

/// The name of the example that this file is, or belongs to.
fn name_of(file: &Path) -> &str {
    let first = file.iter().next().unwrap();
    Path::new(first).file_stem().unwrap().to_str().unwrap()
}

fn says(manifest: &str, example: &str, feature: &str) -> bool {
    let place = format!("[[example]]\nname = \"{example}\"\nrequired-features = [");
    let (_, behind) = manifest.split_once(&place).unwrap_or_default();
    let features = behind.split(']').next().unwrap_or_default();
    features.contains(&format!("\"{feature}\""))
}
