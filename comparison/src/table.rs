//! Tables of ratios, in Markdown.

use std::fmt;

pub struct Table {
    pub title: String,
    /// What the numbers are, and of what.
    pub about: String,
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// One ratio in several settings, and its target.
pub struct Row {
    pub what: String,
    pub target: Option<Target>,
    pub cells: Vec<Option<f64>>,
}

#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn read(text: &str) -> Option<Self> {
        let (sign, value) = text.split_once(' ')?;
        let value = value.parse().ok()?;
        match sign {
            "≥" => Some(Self::AtLeast(value)),
            "≤" => Some(Self::AtMost(value)),
            _ => None,
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Table {
    pub fn new(title: &str, about: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            about: about.to_owned(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// As it was displayed.
    pub fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let title = lines.next()?.strip_prefix("### ")?;
        let about = lines.next()?;
        let (_, columns) = fields(lines.next()?)?;
        let mut table = Self::new(title, about, columns.get(1..)?);
        for line in lines.skip(1) {
            let (what, fields) = fields(line)?;
            let (target, cells) = fields.split_first()?;
            let cells = cells.iter().map(|cell| cell.trim_matches('*').parse().ok());
            table.row(what, Target::read(target), cells);
        }
        Some(table)
    }

    pub fn row(
        &mut self,
        what: impl Into<String>,
        target: impl Into<Option<Target>>,
        cells: impl IntoIterator<Item = Option<f64>>,
    ) {
        self.rows.push(Row {
            what: what.into(),
            target: target.into(),
            cells: cells.into_iter().collect(),
        });
    }
}

/// The first field of a line, and the others.
fn fields(line: &str) -> Option<(&str, Vec<&str>)> {
    let fields = line.strip_prefix('|')?.strip_suffix('|')?.split('|');
    let mut fields = fields.map(str::trim);
    Some((fields.next()?, fields.collect()))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n\n{}\n", self.title, self.about)?;
        let columns = self.columns.join(" | ");
        writeln!(f, "| | target | {columns} |")?;
        writeln!(f, "|---|---|{}", "---|".repeat(self.columns.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self
            .target
            .map_or(String::new(), |target| target.to_string());
        write!(f, "| {} | {target} |", self.what)?;
        for cell in &self.cells {
            match cell {
                None => write!(f, " |")?,
                // A value that misses its target stands out.
                Some(value) if self.target.is_some_and(|target| !target.is_met(*value)) => {
                    write!(f, " **{}** |", Number(*value))?;
                }
                Some(value) => write!(f, " {} |", Number(*value))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// With as many digits as are significant.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            large if large >= 100.0 => write!(f, "{large:.0}"),
            middle if middle >= 10.0 => write!(f, "{middle:.1}"),
            small => write!(f, "{small:.2}"),
        }
    }
}
