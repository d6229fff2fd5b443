//! Figures of a benchmark as people look at them: an SVG chart and a table in Markdown, for
//! `docs/bench/`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";

/// Colours that differ for colour-blind eyes too (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(140, 100, 60),
];

/// Why there is no chart.
#[derive(Debug)]
pub enum ChartError {
    /// No series has a point above zero on both axes.
    Empty,
    /// The chart could not be drawn.
    Draw(String),
    /// A file could not be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChartError::Empty => f.write_str("nothing was measured that a chart could show"),
            ChartError::Draw(reason) => write!(f, "the chart cannot be drawn: {reason}"),
            ChartError::Write(path, error) => {
                write!(f, "{} cannot be written: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ChartError {}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in ascending order of the first number; what is not above 0 is left out.
    pub points: Vec<(f64, f64)>,
}

/// Lines over two logarithmic axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// The horizontal axis: quantity and unit.
    pub across: String,
    /// The vertical axis: quantity and unit.
    pub up: String,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

impl Chart {
    /// The chart as SVG.
    ///
    /// # Errors
    /// [`ChartError::Empty`], [`ChartError::Draw`].
    pub fn svg(&self) -> Result<String, ChartError> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw(&area)?;
        }
        Ok(text)
    }

    /// Writes the chart into a file, whose folder is made where it is missing.
    ///
    /// # Errors
    /// As [`Self::svg`]; [`ChartError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), ChartError> {
        write_text(path, &self.svg()?)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), ChartError> {
        fn told(error: impl fmt::Display) -> ChartError {
            ChartError::Draw(error.to_string())
        }
        let (across, up) = self.ranges().ok_or(ChartError::Empty)?;
        area.fill(&WHITE).map_err(told)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(across.log_scale(), up.log_scale())
            .map_err(told)?;
        chart
            .configure_mesh()
            .x_desc(&self.across)
            .y_desc(&self.up)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(told)?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let (points, colour) = (shown(&series.points), *colour);
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(3))
                .map_err(told)?
                .label(&series.name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(3))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .label_font((FONT, 14))
            .draw()
            .map_err(told)?;
        area.present().map_err(told)
    }

    /// What the axes must span.
    fn ranges(&self) -> Option<(std::ops::Range<f64>, std::ops::Range<f64>)> {
        let points = || self.series.iter().flat_map(|series| shown(&series.points));
        let span = |of: fn(&(f64, f64)) -> f64| {
            let low = points().map(|point| of(&point)).reduce(f64::min)?;
            let high = points().map(|point| of(&point)).reduce(f64::max)?;
            Some(low / 1.3..high * 1.5)
        };
        Some((span(|point| point.0)?, span(|point| point.1)?))
    }
}

/// Points that have a place on logarithmic axes.
fn shown(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().copied().filter(|point| point.0 > 0.0 && point.1 > 0.0).collect()
}

/// A figure in few characters: 950, 12k, 3.4M, 24G.
pub fn number(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = usize::from(scaled < 10.0 && scaled.fract().abs() > 0.04);
    format!("{scaled:.digits$}{unit}")
}

/// A table in Markdown: the first column to the left, the others to the right.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::from("|");
        for cell in cells {
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
        text
    };
    let mut text = line(&mut headings.iter().copied());
    let rule = |column| if column == 0 { "---" } else { "---:" };
    text.push_str(&line(&mut (0..headings.len()).map(rule)));
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// Writes a text into a file, whose folder is made where it is missing.
///
/// # Errors
/// [`ChartError::Write`].
pub fn write_text(path: &Path, text: &str) -> Result<(), ChartError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(path, text))
        .map_err(|error| ChartError::Write(path.to_path_buf(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "Allocations".into(),
            across: "live chunks".into(),
            up: "ns".into(),
            series: vec![Series { name: "ours".into(), points }],
        }
    }

    #[test]
    fn a_chart_names_its_axes_and_series() {
        let svg = chart(vec![(1e3, 20.0), (1e6, 45.0)]).svg().unwrap();
        assert!(svg.starts_with("<svg"));
        for text in ["Allocations", "live chunks", "ours", "polyline"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn nothing_to_show_is_an_error() {
        assert!(matches!(chart(vec![]).svg(), Err(ChartError::Empty)));
        assert!(matches!(chart(vec![(0.0, 5.0), (3.0, 0.0)]).svg(), Err(ChartError::Empty)));
    }

    #[test]
    fn figures_are_short() {
        let figures = [0.0, 9.5, 950.0, 12_000.0, 3_400_000.0, 24e9].map(number);
        assert_eq!(figures, ["0", "9.5", "950", "12k", "3.4M", "24G"]);
    }

    #[test]
    fn a_table_has_a_rule_and_its_rows() {
        let rows = vec![vec!["alloc".to_string(), "20".to_string()]];
        assert_eq!(
            table(&["what", "ns"], &rows),
            "| what | ns |\n| --- | ---: |\n| alloc | 20 |\n"
        );
    }
}
