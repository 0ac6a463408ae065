//! Prometheus' text format, as far as this crate's metrics need it.

use std::collections::BTreeMap;

/// The result of reading `/metrics` once.
pub struct Scrape {
    text: String,
    series: Vec<(String, Labels, f64)>,
}

type Labels = BTreeMap<String, String>;

impl Scrape {
    pub fn parse(text: &str) -> Self {
        let lines = text.lines();
        let samples = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            series: samples.map(sample).collect(),
            text: text.to_owned(),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of the series with exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels: Labels = labels.map(owned).collect();
        let mut series = self.series(name);
        series.find_map(|(found, value)| (*found == labels).then_some(value))
    }

    /// All series of this name.
    pub fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        let series = self.series.iter();
        let named = series.filter(move |(found, _, _)| found == name);
        named.map(|(_, labels, value)| (labels, *value))
    }
}

/// `name{label="value",...} number`; this crate's labels contain neither commas nor quotes.
fn sample(line: &str) -> (String, Labels, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = match series.split_once('{') {
        None => (series, ""),
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed")),
    };
    let labels = labels.split(',').filter(|label| !label.is_empty());
    let label = |label: &str| {
        let (name, value) = label.split_once("=\"").expect("a label");
        let value = value.strip_suffix('"').expect("a quoted value");
        (name.to_owned(), value.to_owned())
    };
    let value = value.parse().expect("a number");
    (name.to_owned(), labels.map(label).collect(), value)
}
