//! What an image said about itself at one moment, and the screen that shows it.

use std::collections::BTreeMap;

use axon_qemu::Error;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};
use serde_json::Value;

use super::feed::Feed;

/// A task, or several of one name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Task {
    polls: u64,
    busy_us: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Device {
    name: String,
    state: String,
    copies: u64,
    bytes: u64,
    doorbells: u64,
    queues_armed: u64,
    notifications: u64,
    host: u64,
    device: u64,
    draining: u64,
}

/// One moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Time since the moment before, in microseconds; 0 where there was none.
    span_us: u64,
    now_us: u64,
    tasks: BTreeMap<String, (Task, Task)>,
    devices: Vec<(Device, Device)>,
    /// Bytes by place and category, all devices together.
    memory: BTreeMap<(&'static str, String), u64>,
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

impl View {
    /// Asks an image how it is.
    ///
    /// # Errors
    /// Where its console has ended.
    pub fn ask(feed: &mut Feed, before: Option<&View>) -> Result<View, Error> {
        let tasks = feed.ask("tasks")?;
        let mut view = View { now_us: number(&tasks.fields, "now_us"), ..View::default() };
        view.span_us = before.map_or(0, |before| view.now_us.saturating_sub(before.now_us));
        for row in &tasks.rows {
            let (task, _) = view.tasks.entry(text(row, "task")).or_default();
            task.polls += number(row, "polls");
            task.busy_us += number(row, "busy_us");
        }
        for (name, (task, earlier)) in &mut view.tasks {
            let known = before.and_then(|before| before.tasks.get(name));
            *earlier = known.map_or_else(|| task.clone(), |(task, _)| task.clone());
        }
        for row in &feed.ask("devices")?.rows {
            let device = Device::ask(feed, row)?;
            let known = before.and_then(|before| before.devices.get(view.devices.len()));
            let earlier = known.map_or_else(|| device.clone(), |(device, _)| device.clone());
            view.devices.push((device, earlier));
        }
        for (place, family) in [
            ("host", "neuron_host_memory_category_used_bytes"),
            ("device", "neuron_core_device_memory_category_used_bytes"),
        ] {
            for row in &feed.ask(&format!("metrics {family}"))?.rows {
                if let Some((category, bytes)) = sample(row["line"].as_str().unwrap_or_default()) {
                    *view.memory.entry((place, category)).or_default() += bytes;
                }
            }
        }
        view.memory.retain(|_, bytes| *bytes != 0);
        Ok(view)
    }

    /// Lines that the screen needs.
    pub fn height(&self) -> u16 {
        (1 + self.devices.len() + self.tasks.len() + self.memory.len() + 3 * 3) as u16
    }

    /// Draws the screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let tasks = self.tasks.len() as u16 + 3;
        let devices = self.devices.len() as u16 + 3;
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(devices),
            Constraint::Length(tasks),
            Constraint::Min(3),
        ]);
        let [title, top, middle, bottom] = areas.areas(frame.area());
        frame.render_widget(self.title(), title);
        frame.render_widget(self.devices(), top);
        frame.render_widget(self.tasks(), middle);
        frame.render_widget(self.memory(), bottom);
    }

    fn title(&self) -> Line<'static> {
        let copies: u64 = self
            .devices
            .iter()
            .map(|(now, before)| now.copies - now.copies.min(before.copies))
            .sum();
        let seconds = self.now_us / 1_000_000;
        let rate = self.rate(copies);
        Line::from(format!("axon  up {seconds} s  {rate} copies/s  q ends")).bold()
    }

    /// Of a count over the span of the view.
    fn rate(&self, count: u64) -> u64 {
        let rate = u128::from(count) * 1_000_000 / u128::from(self.span_us.max(1));
        if self.span_us == 0 { 0 } else { rate as u64 }
    }

    fn devices(&self) -> Table<'static> {
        let rows = self.devices.iter().map(|(now, before)| {
            let rate = |of: fn(&Device) -> u64| self.rate(of(now).saturating_sub(of(before)));
            Row::new([
                now.name.clone(),
                now.state.clone(),
                rate(|device| device.copies).to_string(),
                bytes(rate(|device| device.bytes)),
                rate(|device| device.doorbells).to_string(),
                now.queues_armed.to_string(),
                rate(|device| device.notifications).to_string(),
                bytes(now.host),
                bytes(now.device),
                bytes(now.draining),
            ])
        });
        let heading = [
            "device", "state", "copies/s", "bytes/s", "bells/s", "queues", "notes/s", "host",
            "hbm", "draining",
        ];
        table("devices", &heading, rows.collect(), [24, 7, 8, 9, 8, 6, 8, 8, 8, 8])
    }

    fn tasks(&self) -> Table<'static> {
        let rows = self.tasks.iter().map(|(name, (now, before))| {
            let busy = now.busy_us.saturating_sub(before.busy_us);
            let share = busy * 1000 / self.span_us.max(1);
            Row::new([
                name.clone(),
                now.polls.to_string(),
                self.rate(now.polls.saturating_sub(before.polls)).to_string(),
                format!("{} us", now.busy_us),
                format!("{}.{} %", share / 10, share % 10),
            ])
        });
        let heading = ["task", "polls", "polls/s", "time", "share"];
        table("tasks", &heading, rows.collect(), [24, 12, 12, 14, 8])
    }

    fn memory(&self) -> Table<'static> {
        let rows = self.memory.iter().map(|((place, category), used)| {
            Row::new([place.to_string(), category.clone(), bytes(*used)])
        });
        let heading = ["memory", "category", "used"];
        table("memory", &heading, rows.collect(), [24, 26, 12])
    }
}

impl Device {
    fn ask(feed: &mut Feed, row: &Value) -> Result<Device, Error> {
        let index = number(row, "index");
        let memory = feed.ask(&format!("mem {index}"))?.fields;
        let counters = feed.ask(&format!("counters {index}"))?.fields;
        let queues = feed.ask(&format!("nq totals {index}"))?.fields;
        Ok(Device {
            name: format!("nd{index} {} {}", text(row, "bdf"), text(row, "generation")),
            state: text(row, "state"),
            copies: number(&counters, "completed"),
            bytes: number(&counters, "bytes"),
            doorbells: number(&counters, "doorbells"),
            queues_armed: number(&queues, "armed"),
            notifications: number(&queues, "consumed"),
            host: number(&memory, "host"),
            device: number(&memory, "device"),
            draining: number(&memory, "draining"),
        })
    }
}

fn table<const N: usize>(
    title: &'static str,
    heading: &[&'static str],
    rows: Vec<Row<'static>>,
    widths: [u16; N],
) -> Table<'static> {
    let heading = Row::new(heading.to_vec()).style(Style::new().bold());
    let block = Block::bordered().title(title);
    Table::new(rows, widths.map(Constraint::Length)).header(heading).block(block)
}

/// Category and value of a sample.
fn sample(line: &str) -> Option<(String, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (_, category) = series.split_once("category=\"")?;
    Some((category.split('"').next()?.to_string(), value.parse().ok()?))
}

/// A number of bytes for people.
fn bytes(count: u64) -> String {
    let units = ["", "K", "M", "G", "T"];
    let power = (count.max(1).ilog2() / 10).min(units.len() as u32 - 1);
    format!("{}{}", count >> (10 * power), units[power as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_are_short() {
        let pairs =
            [(0, "0"), (1023, "1023"), (1024, "1K"), (5 << 30, "5G"), (u64::MAX, "16777215T")];
        assert!(pairs.into_iter().all(|(count, text)| bytes(count) == text));
    }

    #[test]
    fn samples_are_found() {
        let line = "x_used_bytes{device=\"0\",category=\"dma_rings\"} 4096";
        assert_eq!(sample(line), Some(("dma_rings".into(), 4096)));
        assert_eq!(sample("# HELP x y"), None);
    }

    #[test]
    fn rates_are_over_the_span_of_the_view() {
        let view = View { span_us: 500_000, ..View::default() };
        assert_eq!(view.rate(7), 14);
        assert_eq!(View::default().rate(7), 0);
    }
}
