//! Accesses by device address: host memory, HBM, the device's own windows, the neighbours
//! (specification 01 §3.1, 02 §13.5).

use crate::function::Function;
use crate::map::{Block, Target};
use crate::report::EventKind;

/// An access that got no answer. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failed;

impl Function {
    /// Reads `into.len()` bytes at a device address.
    pub(crate) fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Failed> {
        match self.map.decode(address, into.len() as u64).ok_or(Failed)? {
            Target::Host(host) => self.host_read(host, into),
            Target::Hbm(offset) => self.hbm.read(offset, into).map_err(|_| Failed),
            Target::OnChip(offset) => self.onchip_read(offset, into),
            Target::CoreHole => {
                into.fill(0);
                self.expected(EventKind::CoreRangeHole, None, address);
                Ok(())
            }
            Target::Peer { link, address } => {
                let peer = self.neighbours[usize::from(link)].clone().ok_or(Failed)?;
                peer.read(address, into).map_err(|_| Failed)
            }
        }
    }

    /// Writes `from` at a device address, whole or not at all.
    pub(crate) fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), Failed> {
        match self.map.decode(address, from.len() as u64).ok_or(Failed)? {
            Target::Host(host) => self.host_write(host, from),
            Target::Hbm(offset) => self.hbm.write(offset, from).map_err(|_| Failed),
            Target::OnChip(offset) => self.onchip_write(offset, from),
            Target::CoreHole => {
                self.expected(EventKind::CoreRangeHole, None, address);
                Ok(())
            }
            Target::Peer { link, address } => {
                let peer = self.neighbours[usize::from(link)].clone().ok_or(Failed)?;
                peer.write(address, from).map_err(|_| Failed)
            }
        }
    }

    /// The word of which `len` bytes of HBM are a run, as far as that is known without a look.
    pub(crate) fn run_at(&self, address: u64, len: usize) -> Option<u32> {
        match self.map.decode(address, len as u64) {
            Some(Target::Hbm(offset)) => self.hbm.run(offset, len as u64),
            _ => None,
        }
    }

    /// Copies a run of `word` that was read at `source`; `false` where that takes its bytes.
    pub(crate) fn put_run(&mut self, address: u64, len: u64, source: u64, word: u32) -> bool {
        match self.map.decode(address, len) {
            Some(Target::Hbm(offset)) if address % 4 == source % 4 => {
                self.hbm.fill(offset, len, word).is_ok()
            }
            _ => false,
        }
    }

    /// Reads host memory by bus address.
    ///
    /// assumed: with bus mastering off the request gets no answer.
    pub(crate) fn host_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Failed> {
        if !self.pci.bus_master() {
            self.violation(EventKind::DmaWithoutBusMaster, None, address);
            return Err(Failed);
        }
        self.host.read(address, into).map_err(|_| Failed)
    }

    /// Writes host memory by bus address; an aligned word is one store with release ordering. With
    /// bus mastering off the write is dropped and reported.
    pub(crate) fn host_write(&mut self, address: u64, from: &[u8]) -> Result<(), Failed> {
        if !self.pci.bus_master() {
            self.violation(EventKind::DmaWithoutBusMaster, None, address);
            return Ok(());
        }
        match <[u8; 4]>::try_from(from) {
            Ok(word) if address.is_multiple_of(4) => {
                self.host.store32(address, u32::from_le_bytes(word))
            }
            _ => self.host.write(address, from),
        }
        .map_err(|_| Failed)
    }

    /// Reads the register window from inside: memory in bulk, registers by aligned words.
    pub(crate) fn onchip_read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Failed> {
        let mut done = 0;
        while done < into.len() {
            let (at, rest) = (offset + done as u64, into.len() - done);
            if let Some((place, run)) = self.memory_run(at, rest) {
                self.onchip.read(place, &mut into[done..done + run]).map_err(|_| Failed)?;
                done += run;
            } else if at.is_multiple_of(4) && rest >= 4 {
                into[done..done + 4].copy_from_slice(&self.read_word(at).to_le_bytes());
                done += 4;
            } else {
                self.recorder.irregular(0, at);
                into[done] = 0xff;
                done += 1;
            }
        }
        Ok(())
    }

    /// Writes the register window from inside, with all side effects.
    pub(crate) fn onchip_write(&mut self, offset: u64, from: &[u8]) -> Result<(), Failed> {
        let mut done = 0;
        while done < from.len() {
            let (at, rest) = (offset + done as u64, &from[done..]);
            if let Some((place, run)) = self.memory_run(at, rest.len()) {
                self.onchip.write(place, &rest[..run]).map_err(|_| Failed)?;
                done += run;
            } else if let (Some(word), true) = (rest.first_chunk::<4>(), at.is_multiple_of(4)) {
                self.write_word(at, u32::from_le_bytes(*word));
                done += 4;
            } else {
                self.recorder.irregular(0, at);
                done += 1;
            }
        }
        Ok(())
    }

    /// If `offset` of the register window is memory: where it lies in the on-chip arena, and how
    /// many of `len` bytes lie there in one piece.
    pub(crate) fn memory_run(&self, offset: u64, len: usize) -> Option<(u64, usize)> {
        let span = self.map.span(offset)?;
        let Block::Memory { base } = span.block else { return None };
        let inside = offset - span.start;
        let run = (len as u64).min(span.len - inside) as usize;
        Some((base + inside, run))
    }
}
