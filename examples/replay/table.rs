//! `Table`: rows of text, a column for each file of limits.

/// Rows with a label and a cell for each file.
pub(crate) struct Table {
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row, unless all its cells are empty.
    pub(crate) fn row(&mut self, label: impl Into<String>, cells: Vec<String>) {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.rows.push((label.into(), cells));
        }
    }

    /// Adds a line that is the head of the rows below it.
    pub(crate) fn head(&mut self, label: impl Into<String>) {
        self.rows.push((label.into(), Vec::new()));
    }

    pub(crate) fn write(&self, text: &mut String) {
        let label_width = width(self.rows.iter().map(|(label, _)| label));
        let columns = self.rows.iter().map(|(_, cells)| cells.len()).max();
        let widths: Vec<_> = (0..columns.unwrap_or_default())
            .map(|column| width(self.rows.iter().filter_map(|(_, cells)| cells.get(column))))
            .collect();
        for (label, cells) in &self.rows {
            let mut line = format!("  {label:label_width$}");
            for (cell, width) in cells.iter().zip(&widths) {
                line += &format!("  {cell:width$}");
            }
            *text += line.trim_end();
            text.push('\n');
        }
    }
}

fn width<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts
        .map(|text| text.chars().count())
        .max()
        .unwrap_or_default()
}
