//! Charts as SVG.

use std::fmt::Write as _;

use super::curves::BandPoint;
use super::escape::Escaped;
use super::scale::Scale;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 460.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 282.0;

/// A chart.
pub(crate) struct Chart<'a> {
    /// Unique in the page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// The chart in words, for readers who cannot see it.
    pub(crate) description: String,
    pub(crate) bottom: &'a str,
    pub(crate) side: &'a str,
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
    pub(crate) lines: Vec<CurveLine>,
    /// The best possible curve, drawn thin.
    pub(crate) guide: Vec<(f64, f64)>,
    pub(crate) marks: Vec<Mark>,
}

/// A policy's curve.
pub(crate) struct CurveLine {
    /// Number of its colour.
    pub(crate) colour: usize,
    pub(crate) name: String,
    pub(crate) levels: Vec<BandPoint>,
}

/// A single figure.
pub(crate) struct Mark {
    pub(crate) colour: usize,
    pub(crate) name: String,
    pub(crate) at: (f64, f64),
}

impl Chart<'_> {
    pub(crate) fn draw(&self) -> String {
        let x = Scale { from: self.x.0, to: self.x.1, start: LEFT, end: RIGHT };
        let y = Scale { from: self.y.0, to: self.y.1, start: BOTTOM, end: TOP };
        let (id, title) = (self.id, Escaped(self.title));
        let mut svg = format!(
            "<figure>\n<figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{title}</title>\
             <desc id=\"{id}-d\">{}</desc>\n",
            Escaped(&self.description),
        );
        self.axes(&mut svg, &x, &y);
        if let Some(path) = path(self.guide.iter().copied(), &x, &y) {
            let _ = writeln!(svg, "<path class=\"guide\" d=\"{path}\"/>");
        }
        // The first policy is drawn last, above the others.
        for line in self.lines.iter().rev() {
            line.draw(&mut svg, &x, &y);
        }
        for mark in &self.marks {
            if x.has(mark.at.0) && y.has(mark.at.1) {
                let _ = writeln!(
                    svg,
                    "<circle class=\"mark s{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"><title>{}</title></circle>",
                    mark.colour,
                    x.place(mark.at.0),
                    y.place(mark.at.1),
                    Escaped(&mark.name),
                );
            }
        }
        svg.push_str("</svg>\n</figure>\n");
        svg
    }

    fn axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        svg.push_str("<g class=\"axes\">\n");
        let decimals = y.decimals(6.0);
        for tick in y.ticks(6.0) {
            let at = y.place(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{RIGHT}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{tick:.decimals$}</text>",
                LEFT - 6.0,
                at + 5.0,
            );
        }
        let decimals = x.decimals(7.0);
        for tick in x.ticks(7.0) {
            let at = x.place(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{BOTTOM}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" class=\"middle\">{tick:.decimals$}</text>",
                BOTTOM + 5.0,
                BOTTOM + 20.0,
            );
        }
        let (middle, high) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{:.1}\" class=\"middle\">{}</text>\n\
             <text transform=\"translate(12 {high}) rotate(-90)\" class=\"middle\">{}</text>\n</g>",
            HEIGHT - 8.0,
            Escaped(self.bottom),
            Escaped(self.side),
        );
    }
}

impl CurveLine {
    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale) {
        // Includes the points just outside, so that the line reaches the chart's edges.
        let is_near = |number: usize| {
            let around = number.saturating_sub(1)..(number + 2).min(self.levels.len());
            self.levels[around].iter().any(|level| x.has(level.at))
        };
        let levels = self.levels.iter().enumerate().filter(|(number, _)| is_near(*number));
        let levels: Vec<&BandPoint> = levels.map(|(_, level)| level).collect();
        let Some(path) = path(levels.iter().map(|level| (level.at, level.mean)), x, y) else {
            return;
        };
        let colour = self.colour;
        let has_spread = levels.iter().any(|level| level.most > level.least);
        let upper = levels.iter().map(|level| (level.at, level.most));
        let lower = levels.iter().rev().map(|level| (level.at, level.least));
        if let Some(band) = self::path(upper.chain(lower), x, y).filter(|_| has_spread) {
            let _ = writeln!(svg, "<path class=\"band s{colour}\" d=\"{band}Z\"/>");
        }
        let _ = writeln!(
            svg,
            "<path class=\"line s{colour}\" d=\"{path}\"><title>{}</title></path>",
            Escaped(&self.name),
        );
    }
}

/// The SVG path through some points; `None` without points.
fn path(points: impl Iterator<Item = (f64, f64)>, x: &Scale, y: &Scale) -> Option<String> {
    let mut path = String::new();
    for (at, value) in points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x.place(at), y.place(value));
    }
    (!path.is_empty()).then_some(path)
}
