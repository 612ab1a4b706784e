//! A small linear program, solved by the simplex method on a dense tableau.
//!
//! Only `+ - * /` on `f64` are used, which are exact by IEEE 754, and pivots are chosen by index.
//! The same program therefore has the same result on every machine, to the last bit.

/// Below this a coefficient is noise.
const EPSILON: f64 = 1e-9;
/// Pivots before the switch to a rule that cannot cycle.
const MAX_GREEDY_PIVOTS: usize = 2_000;

/// Maximises `gains * x` where every row has `row * x <= 1` and `x >= 0`. `x = 0` satisfies all
/// rows, so a solution always exists. Each variable must have a positive coefficient in some row.
pub(super) fn maximise(gains: &[f64], rows: &[Vec<f64>]) -> Vec<f64> {
    let mut tableau = Tableau::new(gains, rows);
    // Far more pivots than any program of this size needs. The intermediate solution satisfies all
    // rows.
    for pivot in 0..2 * MAX_GREEDY_PIVOTS {
        let Some(column) = tableau.entering(pivot < MAX_GREEDY_PIVOTS) else { break };
        let Some(row) = tableau.leaving(column) else { break };
        tableau.pivot(row, column);
    }
    tableau.values()
}

struct Tableau {
    variables: usize,
    width: usize,
    /// One row for each constraint, the last for the gains; the last column is the right-hand side.
    cells: Vec<Vec<f64>>,
    /// The variable of each row; slack variables come behind the others.
    inputs: Vec<usize>,
}

impl Tableau {
    fn new(gains: &[f64], rows: &[Vec<f64>]) -> Self {
        let variables = gains.len();
        let width = variables + rows.len() + 1;
        let mut cells = Vec::with_capacity(rows.len() + 1);
        for (number, row) in rows.iter().enumerate() {
            let mut cell = row.clone();
            cell.resize(width, 0.0);
            cell[variables + number] = 1.0;
            cell[width - 1] = 1.0;
            cells.push(cell);
        }
        let mut last: Vec<f64> = gains.iter().map(|gain| -gain).collect();
        last.resize(width, 0.0);
        cells.push(last);
        let inputs = (variables..variables + rows.len()).collect();
        Self { variables, width, cells, inputs }
    }

    /// The column with the largest gain, or the first with a gain (Bland's rule prevents cycles).
    fn entering(&self, is_greedy: bool) -> Option<usize> {
        let gains = self.cells.last()?;
        let mut best = None;
        let mut least = -EPSILON;
        for (column, gain) in gains[..self.width - 1].iter().enumerate() {
            if *gain < least {
                best = Some(column);
                if !is_greedy {
                    break;
                }
                least = *gain;
            }
        }
        best
    }

    /// The row that binds first; of several the one whose variable has the lowest index.
    fn leaving(&self, column: usize) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (row, variable) in self.inputs.iter().enumerate() {
            let cells = &self.cells[row];
            if cells[column] <= EPSILON {
                continue;
            }
            let ratio = cells[self.width - 1] / cells[column];
            let is_better = best.is_none_or(|(least, other)| {
                ratio < least || (ratio <= least && *variable < self.inputs[other])
            });
            if is_better {
                best = Some((ratio, row));
            }
        }
        best.map(|(_, row)| row)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let mut pivot_row = std::mem::take(&mut self.cells[row]);
        let scale = pivot_row[column];
        for cell in &mut pivot_row {
            *cell /= scale;
        }
        for (number, cells) in self.cells.iter_mut().enumerate() {
            if number == row || cells[column] == 0.0 {
                continue;
            }
            let factor = cells[column];
            for (cell, by) in cells.iter_mut().zip(&pivot_row) {
                *cell -= factor * by;
            }
            cells[column] = 0.0;
        }
        self.cells[row] = pivot_row;
        self.inputs[row] = column;
    }

    fn values(&self) -> Vec<f64> {
        let mut values = vec![0.0; self.variables];
        for (row, variable) in self.inputs.iter().enumerate() {
            if let Some(value) = values.get_mut(*variable) {
                *value = self.cells[row][self.width - 1].max(0.0);
            }
        }
        values
    }
}
