//! `docs/prometheus-alerts.yml` and `docs/grafana-dashboard.json` ask for metrics and labels that the exporter prints.
#![cfg(all(feature = "memory", feature = "metrics", feature = "config"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Deserialize;
use serde_json::Value;
use support::http_store::{TestStore, Trip};
use support::prometheus::Scrape;
use tower_throttle::{
    Config, FailureMode, HOUR, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Metrics, Mode,
    Observer, Policy, per_minute,
};

const RULES: &str = "docs/prometheus-alerts.yml";
const DASHBOARD: &str = "docs/grafana-dashboard.json";

fn text_of(file: &str) -> String {
    fs::read_to_string(Path::new(support::ROOT).join(file)).unwrap()
}

/// An expression in the query language of Prometheus, and where it stands.
struct Query {
    place: String,
    expression: String,
    /// Texts that show labels of its results.
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
    annotations: BTreeMap<String, String>,
}

fn rules() -> Vec<Rule> {
    let file: RuleFile = serde_norway::from_str(&text_of(RULES)).unwrap();
    file.groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

fn alerts() -> Vec<Query> {
    let query = |rule: Rule| Query {
        place: rule.alert,
        expression: rule.expr,
        texts: rule.annotations.into_values().collect(),
    };
    rules().into_iter().map(query).collect()
}

fn panels() -> Vec<Query> {
    let dashboard: Value = serde_json::from_str(&text_of(DASHBOARD)).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            queries.push(Query {
                place: panel["title"].to_string(),
                expression: expression.replace("$__rate_interval", "5m"),
                texts: vec![legend.to_owned()],
            });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let arguments = query.strip_prefix("label_values(").unwrap();
        let (metric, label) = arguments
            .strip_suffix(')')
            .unwrap()
            .split_once(", ")
            .unwrap();
        queries.push(Query {
            place: variable["name"].to_string(),
            expression: format!("count by ({label}) ({metric})"),
            texts: Vec::new(),
        });
    }
    queries
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Sign(char),
}

fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || "_.:".contains(letter);
        let length = match first {
            '"' => rest[1..].find('"').unwrap() + 2,
            first if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(match first {
            '"' => Token::Quoted(token.trim_matches('"').to_owned()),
            first if is_word(first) => Token::Word(token.to_owned()),
            first => Token::Sign(first),
        });
        rest = after.trim_start();
    }
    tokens
}

/// A label and the values that a query asks for; none if a variable of the dashboard stands there.
type Matcher = (String, Vec<String>);

/// What an expression names.
#[derive(Default)]
struct Names {
    metrics: Vec<(String, Vec<Matcher>)>,
    /// The labels that results are grouped by, if they are.
    by: Option<BTreeSet<String>>,
    /// All labels by which series are grouped or joined.
    labels: BTreeSet<String>,
    compared_with: Vec<f64>,
}

impl Names {
    fn of(expression: &str) -> Self {
        let tokens = tokens(expression);
        let mut names = Self::default();
        let by = Token::Word("by".to_owned());
        let mut at = 0;
        while at < tokens.len() {
            let (token, next) = (&tokens[at], tokens.get(at + 1));
            at += 1;
            let Token::Word(word) = token else {
                let number: Option<f64> = match next {
                    Some(Token::Word(word)) if *token == Token::Sign('>') => word.parse().ok(),
                    _ => None,
                };
                names.compared_with.extend(number);
                continue;
            };
            match &**word {
                "by" | "on" => {
                    let end = at + closing(&tokens[at..], ')');
                    let labels = tokens[at..end].iter().filter_map(|token| match token {
                        Token::Word(label) => Some(label.clone()),
                        _ => None,
                    });
                    let labels: BTreeSet<_> = labels.collect();
                    names.labels.extend(labels.clone());
                    if word == "by" {
                        names.by = Some(labels);
                    }
                    at = end;
                }
                "and" | "or" | "unless" => {}
                number if number.starts_with(|letter: char| letter.is_ascii_digit()) => {}
                _ if next == Some(&Token::Sign('(')) || next == Some(&by) => {}
                metric => {
                    let mut matchers = Vec::new();
                    if next == Some(&Token::Sign('{')) {
                        let end = at + closing(&tokens[at..], '}');
                        matchers = matchers_in(&tokens[at + 1..end]);
                        at = end;
                    }
                    names.metrics.push((metric.to_owned(), matchers));
                }
            }
        }
        names
    }
}

fn closing(tokens: &[Token], sign: char) -> usize {
    let is_it = |token: &Token| *token == Token::Sign(sign);
    tokens.iter().position(is_it).expect("a closing sign")
}

fn matchers_in(tokens: &[Token]) -> Vec<Matcher> {
    let matchers = tokens.split(|token| *token == Token::Sign(','));
    let matcher = |tokens: &[Token]| match tokens {
        [
            Token::Word(label),
            Token::Sign('='),
            ..,
            Token::Quoted(value),
        ] => {
            let values = value.split('|').map(str::to_owned);
            let is_fixed = |value: &String| !value.starts_with('$');
            (label.clone(), values.filter(is_fixed).collect())
        }
        other => panic!("{other:?}"),
    };
    matchers.map(matcher).collect()
}

/// Labels that Prometheus adds when it scrapes.
const ADDED: [&str; 2] = ["job", "instance"];

#[test]
fn every_alert_and_panel_asks_for_what_the_exporter_prints() {
    let scrape = history();
    for query in alerts().into_iter().chain(panels()) {
        let place = &query.place;
        let names = Names::of(&query.expression);
        assert!(!names.metrics.is_empty(), "{place}");
        let mut known = BTreeSet::new();
        for (metric, matchers) in &names.metrics {
            let series: Vec<_> = scrape.series(metric).map(|(labels, _)| labels).collect();
            assert!(!series.is_empty(), "{place}: nobody prints {metric}");
            let keys = series.iter().flat_map(|labels| labels.keys().cloned());
            let own: BTreeSet<_> = keys.chain(ADDED.map(str::to_owned)).collect();
            for (label, values) in matchers {
                assert!(own.contains(label), "{place}: {metric} has no {label}");
                for value in values {
                    let has_it = series.iter().any(|labels| labels.get(label) == Some(value));
                    assert!(has_it, "{place}: {metric} is never {label}={value}");
                }
            }
            known.extend(own);
        }
        for label in &names.labels {
            assert!(known.contains(label), "{place}: there is no label {label}");
        }
        for text in &query.texts {
            for label in labels_shown(text) {
                let shown = names.by.as_ref().unwrap_or(&known);
                assert!(shown.contains(&label), "{place}: results have no {label}");
            }
        }
        let of_buckets = |(metric, _): &(String, _)| metric.ends_with("_bucket");
        if names.metrics.iter().all(of_buckets) {
            for threshold in names.compared_with {
                assert!(
                    buckets().contains(&threshold),
                    "{place}: {threshold} is no bucket"
                );
            }
        }
    }
}

/// `{{ $labels.policy }}` in an alert, `{{policy}}` in a legend.
fn labels_shown(text: &str) -> Vec<String> {
    let shown = text.split("{{").skip(1);
    let shown = shown.map(|rest| rest.split("}}").next().unwrap().trim());
    let labels = shown.filter(|shown| !shown.starts_with("$value"));
    let name = |shown: &str| shown.trim_start_matches("$labels.").to_owned();
    labels.map(name).collect()
}

/// Those that the documentation sets.
fn buckets() -> Vec<f64> {
    let page = text_of("docs/observability.md");
    let (_, list) = page.split_once("&[").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    list.split(',')
        .map(|bucket| bucket.trim().parse().unwrap())
        .collect()
}

/// What is printed after requests of every kind.
fn history() -> Scrape {
    let seconds = metrics_exporter_prometheus::Matcher::Suffix("_seconds".into());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &buckets());
    let recorder = builder.unwrap().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let store = MemoryStore::builder().clock(ManualClock::new()).build();
        let metrics = Metrics::named("public").watch_memory(store.clone());
        let policies = [
            Policy::new("api", Limit::sliding_log(10, MINUTE)),
            Policy::new("trial", Limit::sliding_log(1, MINUTE)).mode(Mode::Shadow),
            Policy::new("queue", Limit::leaky_bucket(5, per_minute(1))),
        ];
        let limiter = Limiter::builder(store, policies).observe(metrics.clone());
        let limiter = limiter.build().unwrap();
        for policy in ["api", "trial", "queue"] {
            check(&limiter, policy, 20);
        }
        metrics.on_store_answer(Duration::from_millis(1), None);
        metrics.collect();
        limiter.turn_off();

        let closed = Policy::new("closed", Limit::gcra(1, HOUR));
        let policies = [
            Policy::new("open", Limit::gcra(1, MINUTE)),
            closed.on_store_failure(FailureMode::Deny),
            Policy::new("trial", Limit::gcra(1, MINUTE)).mode(Mode::Shadow),
        ];
        let failing = Limiter::builder(TestStore::new(Trip::FailsLate), policies);
        let failing = failing.observe(Metrics::named("internal")).build().unwrap();
        for policy in ["open", "closed", "trial"] {
            check(&failing, policy, 20);
        }

        let file = Config::from_toml("store = \"memory\"\npolicy = []").unwrap();
        file.observe(Metrics::named("file")).connect_lazy().unwrap();
    });
    let scrape = Scrape::parse(&recorder.handle().render());
    // Or the history is not what it should be.
    let failures = "tower_throttle_decisions_total";
    for (limiter, policy, result) in [
        ("public", "api", "denied"),
        ("public", "trial", "shadow_denied"),
        ("public", "queue", "waited"),
        ("internal", "open", "failed_open"),
        ("internal", "closed", "failed_closed"),
        // Which is why the alerts ask for the policy's mode, too.
        ("internal", "trial", "failed_open"),
    ] {
        let labels = [("limiter", limiter), ("policy", policy), ("result", result)];
        let count = scrape.value(failures, &labels).unwrap_or_default();
        assert!(count > 0.0, "{labels:?}: {}", scrape.text());
    }
    let open = [("limiter", "internal"), ("state", "closed")];
    assert_eq!(
        scrape.value("tower_throttle_breaker_state", &open),
        Some(0.0)
    );
    scrape
}

/// On this thread, where the recorder is.
fn check(limiter: &Limiter, policy: &str, times: usize) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(async {
        for _ in 0..times {
            let _ = limiter.check(policy, "alice").await.unwrap();
        }
    });
}

#[test]
fn names_in_an_expression_are_found() {
    let names = Names::of(
        r#"sum by (job, le) (rate(a_total{x="1", y=~"$y|2"}[5m])) / b > 0.5 and on (z) c"#,
    );
    let found: Vec<_> = names.metrics.iter().map(|(metric, _)| &**metric).collect();
    assert_eq!(found, ["a_total", "b", "c"]);
    let matchers = [("x", "1"), ("y", "2")].map(|(x, y)| (x.to_owned(), vec![y.to_owned()]));
    assert_eq!(names.metrics[0].1, matchers);
    assert_eq!(names.by.unwrap(), ["job", "le"].map(str::to_owned).into());
    assert!(names.labels.contains("z"));
    assert_eq!(names.compared_with, [0.5]);
}

#[test]
fn the_page_for_operators_names_every_alert() {
    let page = text_of("docs/operations.md");
    for rule in rules() {
        let name = format!("`{}`", rule.alert);
        assert!(
            page.contains(&name),
            "docs/operations.md says nothing of {name}"
        );
    }
}

/// Without `promtool`, only the tests above check the files.
#[test]
fn promtool_accepts_the_rules_and_the_panels() {
    let directory = tempfile::tempdir().unwrap();
    let recorded = directory.path().join("panels.yml");
    let panels = panels();
    let panels = panels.iter().enumerate().map(|(nth, query)| {
        let expression = Value::from(&*query.expression);
        format!("  - {{ record: panel_{nth}, expr: {expression} }}\n")
    });
    let panels: String = panels.collect();
    fs::write(
        &recorded,
        format!("groups:\n- name: panels\n  rules:\n{panels}"),
    )
    .unwrap();
    for (verb, file) in [
        ("check", Path::new(RULES)),
        ("check", &recorded),
        ("test", Path::new("docs/prometheus-alerts.test.yml")),
    ] {
        let mut promtool = Command::new("promtool");
        let promtool = promtool.args([verb, "rules"]).arg(file);
        let output = match promtool.current_dir(support::ROOT).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("there is no promtool: the queries are checked by their names alone");
                return;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{file:?}: {output:?}");
    }
}
