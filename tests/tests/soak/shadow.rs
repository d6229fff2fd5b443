//! What the HBM has to hold: every byte, page by page, and which bytes nobody vouches for at the
//! moment because what wrote them has failed or was dropped.

use std::collections::HashMap;
use std::ops::Range;

pub const PAGE: u64 = 4096;

/// What the HBM has to hold.
#[derive(Default)]
pub struct Shadow(HashMap<u64, Page>);

struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    /// Bytes that nobody vouches for.
    unknown: Option<Box<[bool; PAGE as usize]>>,
}

impl Default for Page {
    fn default() -> Self {
        Page { bytes: Box::new([0; PAGE as usize]), unknown: None }
    }
}

impl Shadow {
    /// The pages of a range: each with the range in it and the position in the whole.
    fn each(
        &mut self,
        address: u64,
        len: u64,
        mut with: impl FnMut(&mut Page, Range<usize>, usize),
    ) {
        let mut at = address;
        while at < address + len {
            let inside = (at % PAGE) as usize;
            let count = (PAGE as usize - inside).min((address + len - at) as usize);
            let page = self.0.entry(at / PAGE).or_default();
            with(page, inside..inside + count, (at - address) as usize);
            at += count as u64;
        }
    }

    /// Numbers of the pages that were ever written.
    pub fn pages(&self) -> impl Iterator<Item = u64> + Clone {
        self.0.keys().copied()
    }

    /// Whether anything of this page was ever written.
    pub fn has(&self, page: u64) -> bool {
        self.0.contains_key(&page)
    }

    pub fn set(&mut self, address: u64, bytes: &[u8]) {
        self.each(address, bytes.len() as u64, |page, range, from| {
            page.bytes[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
            if let Some(unknown) = &mut page.unknown {
                unknown[range].fill(false);
                if unknown.iter().all(|unknown| !unknown) {
                    page.unknown = None;
                }
            }
        });
    }

    /// Nobody vouches for these bytes until they are set again.
    pub fn forget(&mut self, address: u64, len: u64) {
        self.each(address, len, |page, range, _| {
            let unknown = page.unknown.get_or_insert_with(|| Box::new([false; PAGE as usize]));
            unknown[range].fill(true);
        });
    }

    /// The bytes of a range, where somebody vouches for all of them.
    pub fn known(&mut self, address: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len as usize);
        let mut known = true;
        self.each(address, len, |page, range, _| {
            bytes.extend_from_slice(&page.bytes[range.clone()]);
            known &= page.unknown.as_ref().is_none_or(|unknown| !unknown[range].contains(&true));
        });
        known.then_some(bytes)
    }

    /// A copy inside the HBM that went well.
    pub fn copy(&mut self, source: u64, target: u64, len: u64) {
        let bytes = self.known(source, len).expect("what failed was looked at");
        self.set(target, &bytes);
    }

    #[track_caller]
    pub fn check(&mut self, address: u64, found: &[u8], what: &str) {
        self.each(address, found.len() as u64, |page, range, from| {
            let found = &found[from..from + range.len()];
            if page.bytes[range.clone()] == *found {
                return;
            }
            for (at, &byte) in range.zip(found) {
                let known = page.unknown.as_ref().is_none_or(|unknown| !unknown[at]);
                let right = page.bytes[at] == byte;
                assert!(right || !known, "{what}: byte {at:#x} from {address:#x} is {byte:#x}");
            }
        });
    }

    /// Bytes that nobody vouches for.
    pub fn unvouched(&self) -> u64 {
        let unknown = self.0.values().filter_map(|page| page.unknown.as_ref());
        unknown.map(|bytes| bytes.iter().filter(|unknown| **unknown).count() as u64).sum()
    }
}
