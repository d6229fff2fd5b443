//! What a program says itself, in the text log. A process has one logger, so this is a test of its
//! own.

use std::sync::Mutex;

use axon::{Driver, DriverConfig};
use axon_tests::bench::trn1;
use log::{LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Kept;

impl Log for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.target() == "client" {
            LINES.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[test]
fn st_d47_api_e67_a_program_prints_text_of_any_length() {
    log::set_logger(&Kept).unwrap();
    log::set_max_level(LevelFilter::Info);
    let machine = trn1().machine();
    let driver = Driver::with_config(machine.clone(), DriverConfig::default());
    let long = "x".repeat(513);
    for text in ["", "hello", "two\nlines\n", &long] {
        driver.log(text);
    }
    assert_eq!(*LINES.lock().unwrap(), ["hello", "two", "lines", &long]);
    machine.run(driver.shut_down()).unwrap();
    machine.shut_down();
}
