//! What the console holds open: clients, transfers under way, the current client and device.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use axon::{
    BarView, Client, CoreClaim, Device, Driver, Error, ExportedRegion, HeldRanges, InfoClient,
    NotificationQueue, Registration, Scrub, SegmentCopy, SegmentsError, Transfer,
};
use axon_platform::{Errno, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::commands;
use crate::engine::Commands;
use crate::number;
use crate::words::Words;

/// A client of either lane.
pub(crate) enum Opened<P: Platform> {
    Normal(Client<P>),
    Info(InfoClient<P>),
}

impl<P: Platform> Opened<P> {
    pub(crate) fn device(&self) -> &Device<P> {
        match self {
            Opened::Normal(client) => client.device(),
            Opened::Info(client) => client.device(),
        }
    }
}

/// What was started and not waited for.
pub(crate) enum Waiting<P: Platform> {
    One(Transfer<P>),
    List(SegmentCopy<P>),
}

/// A reset whose result was not collected.
pub(crate) type Ticket = axon::ResetTicket;

/// The console's state between commands.
pub struct Session<P: Platform> {
    pub(crate) platform: P,
    pub(crate) driver: Driver<P>,
    pub(crate) clients: BTreeMap<u64, Opened<P>>,
    pub(crate) current: Option<u64>,
    pub(crate) device: Option<u32>,
    pub(crate) waits: Numbered<Waiting<P>>,
    pub(crate) scrubs: Numbered<Scrub<P>>,
    pub(crate) resets: Numbered<Ticket>,
    /// Number of the last frame of metrics.
    pub(crate) frames: u64,
    pub(crate) claims: Numbered<CoreClaim>,
    pub(crate) queues: Numbered<NotificationQueue<P>>,
    pub(crate) windows: Numbered<BarView<P>>,
    pub(crate) exports: Numbered<ExportedRegion>,
    pub(crate) peers: Numbered<Registration>,
    pub(crate) holds: Numbered<HeldRanges>,
}

/// Things under numbers that are never used twice.
///
/// A list by number: there are few, and a tree would be in the image once for each kind of thing.
pub(crate) struct Numbered<T> {
    things: Vec<(u64, T)>,
    last: u64,
}

impl<T> Numbered<T> {
    pub(crate) const fn new() -> Self {
        Numbered { things: Vec::new(), last: 0 }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u64 {
        self.last += 1;
        self.things.push((self.last, thing));
        self.last
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.things.retain(|(_, thing)| keep(thing));
    }

    pub(crate) fn get(&mut self, what: &str, number: u64) -> Result<&mut T, Failure> {
        let at = self.place(number).ok_or_else(|| not_open(what, number))?;
        self.things.get_mut(at).map(|(_, thing)| thing).ok_or_else(|| not_open(what, number))
    }

    pub(crate) fn take(&mut self, what: &str, number: u64) -> Result<T, Failure> {
        let at = self.place(number).ok_or_else(|| not_open(what, number))?;
        Ok(self.things.remove(at).1)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.things.iter().position(|(there, _)| *there == number)
    }
}

#[cold]
fn not_open(what: &str, number: u64) -> Failure {
    Failure::invalid(format_args!("{what} {number} is not open"))
}

impl<P: Platform> Session<P> {
    /// Nothing open; where the machine has one device only, it is the default one.
    pub fn new(platform: P, driver: Driver<P>) -> Self {
        Session {
            platform,
            driver,
            clients: BTreeMap::new(),
            current: None,
            device: None,
            waits: Numbered::new(),
            scrubs: Numbered::new(),
            resets: Numbered::new(),
            frames: 0,
            claims: Numbered::new(),
            queues: Numbered::new(),
            windows: Numbered::new(),
            exports: Numbered::new(),
            peers: Numbered::new(),
            holds: Numbered::new(),
        }
    }

    /// The device that a word names, an index or a BDF.
    pub(crate) fn device_named(&self, word: &str) -> Result<Device<P>, Failure> {
        if !word.contains(':') {
            let index = number::limited("device", word, u32::MAX.into())?;
            return Ok(self.driver.device(index as u32)?);
        }
        let devices = self.driver.devices();
        let found = devices.into_iter().find(|device| is_bdf(device, word));
        found.ok_or_else(|| Failure::new(Errno::ENODEV, format_args!("there is no device {word}")))
    }

    /// The device a command is for: the next word, where there are more words than the `needed`
    /// ones behind it, else the default device.
    pub(crate) fn device(
        &self,
        words: &mut Words<'_>,
        needed: usize,
    ) -> Result<Device<P>, Failure> {
        if words.left() > needed {
            return self.device_named(words.word("device")?);
        }
        let index = self.device.ok_or_else(|| {
            Failure::invalid("which device? name one, or open one to make it the default")
        })?;
        Ok(self.driver.device(index)?)
    }

    /// The current client, of either lane.
    pub(crate) fn opened(&self) -> Result<&Opened<P>, Failure> {
        let current = self.current.and_then(|number| self.clients.get(&number));
        current.ok_or_else(|| Failure::new(Errno::EACCES, "no client is open; `open` one first"))
    }

    /// The current client, which must be a normal one.
    pub(crate) fn client(&self) -> Result<&Client<P>, Failure> {
        match self.opened()? {
            Opened::Normal(client) => Ok(client),
            Opened::Info(_) => {
                Err(Failure::invalid("the current client is on the info lane: queries only"))
            }
        }
    }
}

/// Full form, or without the segment as it is printed.
fn is_bdf<P: Platform>(device: &Device<P>, word: &str) -> bool {
    let bdf = device.bdf();
    let long =
        alloc::format!("{:04x}:{:02x}:{:02x}.{:x}", bdf.segment, bdf.bus, bdf.device, bdf.function);
    word == alloc::format!("{bdf}") || word == long
}

impl<P: Platform> Commands for Session<P> {
    async fn run(&mut self, words: &[&str], rows: &mut dyn FnMut(&Fields)) -> Outcome {
        commands::run(self, words, rows).await
    }
}

impl From<SegmentsError> for Failure {
    fn from(failed: SegmentsError) -> Self {
        Failure::new(failed.error.errno(), failed)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::new(error.errno(), error)
    }
}
