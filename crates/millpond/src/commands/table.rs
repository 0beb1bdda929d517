//! Tables as kubectl prints them: upper-case heads, three spaces between columns;
//! numbers stand to the right.

/// Where the text of a column stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

pub(crate) struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Side)]) -> Self {
        let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        Self { sides: columns.iter().map(|(_, side)| *side).collect(), rows: vec![heads] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.sides.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Adds the table to a page, below the line that introduces it.
    pub(crate) fn add_to(&self, page: &mut String) {
        for line in self.text().lines() {
            page.push_str("  ");
            page.push_str(line);
            page.push('\n');
        }
    }

    /// The table without a line break at its end.
    pub(crate) fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// The lines of the table, the heads first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..self.sides.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.sides).zip(&widths).map(|((cell, side), width)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}
