//! What a person reads: the devices, and one line for each core.

use alloc::format;
use alloc::string::String;

use crate::report::{CopyRow, DeviceRow};

const KINDS: [&str; 4] = ["h2d", "d2d", "d2h", "memset"];

/// One line for each function.
pub fn devices(rows: &[DeviceRow]) -> String {
    let mut text = String::from("device  function  id         generation  state    bring-up\n");
    for row in rows {
        let index = row.index.map_or("-".into(), |index| format!("nd{index}"));
        let generation = row.generation.as_deref().unwrap_or("-");
        text += &format!(
            "{index:<7} {:<9} {:<10} {generation:<11} {:<8} {} us\n",
            row.bdf,
            row.pci_id,
            row.state,
            row.bringup_ns / 1000
        );
        if let Some(error) = &row.error {
            text += &format!("        {error}\n");
        }
    }
    text
}

/// One line for each core: copies as they have to be, of all copies, by direction.
pub fn copies(rows: &[CopyRow]) -> String {
    let mut text = String::from("core    ");
    KINDS.iter().for_each(|kind| text += &format!("  {kind:<6}"));
    text += "  bytes       doorbells  reads\n";
    for group in rows.chunk_by(|a, b| (a.device, a.core) == (b.device, b.core)) {
        let Some(CopyRow { device, core, .. }) = group.first() else { continue };
        text += &format!("nd{device}.nc{core}");
        for kind in KINDS {
            let of_kind = || group.iter().filter(|row| row.kind == kind);
            let right = of_kind().filter(|row| row.verified).count();
            text += &format!("  {right:>2}/{:<3}", of_kind().count());
        }
        let sum = |count: fn(&CopyRow) -> u64| group.iter().map(count).sum::<u64>();
        text += &format!(
            "  {:<10}  {:<9}  {}\n",
            sum(|row| row.bytes),
            sum(|row| row.doorbells),
            sum(|row| row.register_reads)
        );
    }
    for row in rows.iter().filter(|row| !row.verified) {
        text += &format!(
            "WRONG nd{}.nc{} {}: {} bytes are not as they have to be, or bytes beside them\n",
            row.device, row.core, row.kind, row.bytes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, verified: bool) -> CopyRow {
        CopyRow {
            device: 0,
            core: 1,
            kind,
            bytes: 4096,
            verified,
            doorbells: 2,
            register_reads: 0,
            descriptors: 2,
        }
    }

    #[test]
    fn a_core_is_one_line_and_a_wrong_copy_another() {
        let text = copies(&[row("h2d", true), row("d2d", true), row("d2h", false)]);
        let lines: alloc::vec::Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "nd0.nc1   1/1     1/1     0/1     0/0    12288       6          0");
        assert!(lines[2].starts_with("WRONG nd0.nc1 d2h: 4096 bytes"));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_refused_function_says_why() {
        let text = devices(&[DeviceRow {
            bdf: "00:02.0".into(),
            pci_id: "1d0f:9999".into(),
            generation: None,
            index: None,
            state: "INVALID",
            bringup_ns: 12_000,
            error: Some("no Neuron accelerator".into()),
        }]);
        assert!(text.contains("-       00:02.0   1d0f:9999  -           INVALID  12 us\n"));
        assert!(text.ends_with("        no Neuron accelerator\n"));
    }
}
