//! One engine: initialisation, state, diagnosis (specification 02 §4, §5.4, §10).

use axon_platform::MmioWindow;

use super::report::EngineReport;
use crate::hal::Engine;
use crate::hal::tables::EngineTables;
use crate::registers::{iofic, queue, sdma, unit};

/// Writes to registers of one block.
struct Block<'a, W>(&'a W, u64);

impl<W: MmioWindow> Block<'_, W> {
    #[inline(always)]
    fn write(&self, offset: u64, value: u32) {
        self.0.write32(self.1 + offset, value);
    }

    #[inline(always)]
    fn set(&self, (offset, value): (u64, u32)) {
        self.write(offset, value);
    }

    fn read(&self, offset: u64) -> u32 {
        self.0.read32(self.1 + offset)
    }
}

/// Brings an engine from reset into its working state; no queue runs yet.
///
/// The order and the values are those of 02 §4 with the corrections of 02 §14 (UDMA-D05 to D07):
/// completion rings are switched off first, no queue is enabled before it has a ring, error masks
/// are written from known values. Two or three registers whose other bits are not known are read.
pub(crate) fn initialise<W: MmioWindow>(registers: &W, engine: &Engine, tables: &EngineTables) {
    let unit = Block(registers, engine.unit);
    let wrapper = Block(registers, engine.wrapper);
    if tables.broadcast && engine.core.is_some() {
        join_broadcast(&wrapper, engine.number_in_core);
    }
    stop_queues(&unit);
    configure(&unit, tables);
    arm_errors(&unit);
    limit_packets(&unit);
    wrap(&wrapper, tables);
    if tables.axi_abort_tables {
        abort_on_axi_errors(&unit);
    }
    if let (true, Some(user_fis)) = (tables.mask_ring_id_errors, engine.user_fis) {
        ignore_ring_ids(&unit, &Block(registers, user_fis));
    }
}

fn join_broadcast<W: MmioWindow>(wrapper: &Block<'_, W>, number: u8) {
    let last = sdma::BROADCAST_LAST_ENGINES & (1 << number) != 0;
    wrapper.write(sdma::BROADCAST_GROUP, 0xffff >> number);
    wrapper.write(sdma::BROADCAST_LAST, if last { 0xffff } else { 0 });
}

/// S2M completion rings are on after reset; a queue left running by an earlier life is paused.
fn stop_queues<W: MmioWindow>(unit: &Block<'_, W>) {
    for q in 0..queue::COUNT {
        let (m2s, s2m) = (queue::M2S + q * queue::PITCH, queue::S2M + q * queue::PITCH);
        unit.write(m2s + queue::M2S_COMPLETION, 0);
        unit.write(s2m + queue::S2M_COMPLETION, 0);
        unit.write(m2s + queue::CFG, queue::CFG_PAUSED);
        unit.write(s2m + queue::CFG, queue::CFG_PAUSED);
    }
}

fn configure<W: MmioWindow>(unit: &Block<'_, W>, tables: &EngineTables) {
    unit.write(unit::M2S_DATA, tables.m2s_data_cfg);
    unit.write(unit::M2S_OUTSTANDING, tables.m2s_outstanding);
    unit.write(unit::AXI_LIMIT, unit::AXI_LIMIT_CLOCKS);
    unit.set(unit::M2S_ACK);
    unit.set(unit::M2S_LENGTH);
    unit.set(unit::M2S_STREAM);
    unit.set(unit::M2S_DATA_READ);
    unit.set(unit::S2M_ACK);
    for q in 0..queue::COUNT {
        let select = unit::ADDRESS_SELECT + q * unit::ADDRESS_SELECT_PITCH;
        for selector in 0..4 {
            unit.write(select + 4 * selector, unit::ADDRESS_SELECT_ALL);
        }
    }
    unit.write(unit::S2M_READ_OUTSTANDING, tables.s2m_read_outstanding);
    unit.set(unit::S2M_WRITE_OUTSTANDING);
    if let Some(writes) = tables.s2m_write_outstanding_2 {
        let others =
            unit.read(unit::S2M_WRITE_OUTSTANDING_2) & !unit::S2M_WRITE_OUTSTANDING_2_FIELD;
        unit.write(unit::S2M_WRITE_OUTSTANDING_2, others | writes);
    }
    let spare = unit.read(unit::SPARE);
    unit.write(unit::SPARE, spare & !1);
}

fn arm_errors<W: MmioWindow>(unit: &Block<'_, W>) {
    let groups = [
        (iofic::SECONDARY_A, iofic::UNARMED_A),
        (iofic::SECONDARY_B, iofic::UNARMED_B),
        (iofic::SECONDARY_C, iofic::UNARMED_C),
    ];
    for (group, unarmed) in groups {
        unit.write(group.control(), iofic::CONTROL);
        unit.write(group.abort_mask(), unarmed);
        unit.write(group.unmask(), unarmed);
    }
    unit.write(iofic::PRIMARY_D.control(), iofic::CONTROL);
    unit.write(iofic::PRIMARY_D.unmask(), iofic::UNARMED_D);
}

fn limit_packets<W: MmioWindow>(unit: &Block<'_, W>) {
    unit.set(unit::S2M_COMPLETION);
    unit.set(unit::M2S_PACKET);
    unit.set(unit::M2S_PREFETCH);
    unit.set(unit::S2M_PREFETCH);
    unit.set(unit::M2S_DESCRIPTOR_READ);
    unit.set(unit::S2M_DESCRIPTOR_READ);
}

fn wrap<W: MmioWindow>(wrapper: &Block<'_, W>, tables: &EngineTables) {
    wrapper.set(sdma::READ_REORDER);
    wrapper.set(sdma::WRITE_REORDER);
    wrapper.set(sdma::EVENT_ACCELERATION);
    if let Some(beats) = tables.overhead_beats {
        wrapper.write(sdma::OVERHEAD_BEATS, beats);
    }
}

fn abort_on_axi_errors<W: MmioWindow>(unit: &Block<'_, W>) {
    for table in 0..6 {
        for entry in unit::AXI_ERROR_ENTRIES {
            unit.write(unit::AXI_ERROR_TABLE + table * 0x40 + entry, 0xf);
        }
    }
    for table in 0..6 {
        for q in 0..queue::COUNT as u32 {
            unit.write(unit::AXI_ERROR_CONTROL + table * 8, q << 3 | 7);
            unit.write(unit::AXI_ERROR_CONTROL + table * 8 + 4, 0x10);
        }
    }
    for group in iofic::AXI_PORTS {
        unit.write(group.control(), iofic::CONTROL);
        unit.write(group.abort_mask(), 0);
        unit.write(group.unmask(), 0);
    }
    unit.write(unit::AXI_LIMIT, unit::AXI_LIMIT_OFF);
}

/// Mask and abort mask get the bit each from its own known value (UDMA-D06). The controller outside
/// the unit is shared with others, so its bits are kept.
// assumed: "no reads" of UDMA-D06 means the unit's own registers; nobody states the reset value of
// the outside controller.
fn ignore_ring_ids<W: MmioWindow>(unit: &Block<'_, W>, user_fis: &Block<'_, W>) {
    let a = iofic::UNARMED_A | iofic::RING_ID_A;
    let b = iofic::UNARMED_B | iofic::RING_ID_B;
    unit.write(iofic::SECONDARY_A.mask(), a);
    unit.write(iofic::SECONDARY_A.abort_mask(), a);
    unit.write(iofic::SECONDARY_B.mask(), b);
    unit.write(iofic::SECONDARY_B.abort_mask(), b);
    for (offset, bit) in [iofic::USER_FIS_M2S, iofic::USER_FIS_S2M] {
        let others = user_fis.read(offset);
        user_fis.write(offset, others | bit);
    }
    unit.write(unit::M2S_ERROR_LOG_MASK, iofic::RING_ID_A);
    unit.write(unit::S2M_ERROR_LOG_MASK, iofic::RING_ID_B);
}

/// Both `state` registers, M2S first.
pub(crate) fn states<W: MmioWindow>(registers: &W, unit: u64) -> (u32, u32) {
    (registers.read32(unit + unit::M2S_STATE), registers.read32(unit + unit::S2M_STATE))
}

/// Everything the engine says about an error (UDMA-D04).
pub(crate) fn diagnose<W: MmioWindow>(registers: &W, unit: u64) -> EngineReport {
    let block = Block(registers, unit);
    let log = |offset| [0, 4, 8, 12].map(|word| block.read(offset + word));
    EngineReport {
        m2s_state: block.read(unit::M2S_STATE),
        s2m_state: block.read(unit::S2M_STATE),
        m2s_causes: block.read(iofic::SECONDARY_A.cause()),
        s2m_causes: block.read(iofic::SECONDARY_B.cause()),
        parity_causes: block.read(iofic::SECONDARY_C.cause()),
        m2s_log: log(unit::M2S_LOG),
        s2m_log: log(unit::S2M_LOG),
    }
}

/// Registers that [`diagnose`] reads.
pub(crate) const DIAGNOSIS_READS: u64 = 13;

/// Stops both directions behind their current packet, for good: part of tear-down.
pub(crate) fn disable<W: MmioWindow>(registers: &W, unit: u64) {
    let block = Block(registers, unit);
    block.write(unit::M2S_CHANGE_STATE, unit::STATE_DISABLE);
    block.write(unit::S2M_CHANGE_STATE, unit::STATE_DISABLE);
}

#[cfg(test)]
mod tests {
    use axon_ports::EngineId;

    use super::*;
    use crate::hal::tests::hal;
    use crate::testing::FakeWindow;

    fn initialised(device: u16, number: u32) -> (FakeWindow, Engine) {
        let hal = hal(device);
        let engine = hal.engine(EngineId::new(number).unwrap()).unwrap();
        let window = FakeWindow::new();
        initialise(&window, &engine, &hal.tables().engine);
        (window, engine)
    }

    #[test]
    fn udma_e31_udma_d05_udma_d06_udma_d20_error_masks_after_initialisation() {
        let masks = |device, number| {
            let (window, engine) = initialised(device, number);
            let at = |offset| window.value(engine.unit + offset);
            (at(0x3a030), at(0x3a070), at(0x3a0b0), at(0x380d8), at(0x3a028))
        };
        let h2t = (0xf000_0000, 0x0000_10f8, 0xffff_f000, 0xffff_f8ff, 0x28);
        assert_eq!(masks(0x7164, 0), h2t);
        assert_eq!(masks(0x7364, 128), h2t);
        assert_eq!(masks(0x7364, 5), (0xf002_0000, 0x0000_18f8, 0xffff_f000, 0xffff_f8ff, 0x28));
    }

    #[test]
    fn udma_d07_no_queue_runs_and_completion_rings_are_off() {
        let (window, engine) = initialised(0x7364, 129);
        let writes = window.take_writes();
        for q in 0..16 {
            let m2s = engine.unit + 0x1000 + q * 0x1000;
            let s2m = engine.unit + 0x21000 + q * 0x1000;
            assert_eq!((window.value(m2s + 0xa0), window.value(s2m + 0x54)), (0, 0));
            for cfg in [m2s + 0x20, s2m + 0x20] {
                let to_cfg: alloc::vec::Vec<_> =
                    writes.iter().filter(|(offset, _)| *offset == cfg).collect();
                assert_eq!(to_cfg, [&(cfg, 0x0300_0000)]);
            }
        }
        assert_eq!(writes[0], (engine.unit + 0x10a0, 0), "completion rings go first");
        let commands = [engine.unit + 0x204, engine.unit + 0x20204];
        assert!(writes.iter().all(|(offset, _)| !commands.contains(offset)));
    }

    #[test]
    fn values_of_each_generation() {
        let at = |device, number, offset| {
            let (window, engine) = initialised(device, number);
            window.value(engine.unit + offset)
        };
        let rows = [
            (0x310, 0x0100_0400, 0x0100_08f8),
            (0x124, 0x0000_086f, 0x2080_8080),
            (0x20124, 0x0040_0008, 0x0040_0080),
            (0x20128, 0x4080_4080, 0x4080_4080),
            (0x3a300, 0xffff_ffff, 0x05f5_e100),
            (0x254, 0x010f_ffff, 0x010f_ffff),
            (0x258, 0x0000_0102, 0x0000_0102),
            (0x304, 0x0001_0041, 0x0001_0041),
            (0x20308, 0x0000_4181, 0x0000_4181),
            (0x2011c, 0x0001_0008, 0x0001_0008),
            (0x3c7cc, 0xffff_ffff, 0xffff_ffff),
        ];
        for (offset, v2, v3) in rows {
            assert_eq!(at(0x7164, 32, offset), v2, "{offset:#x}");
            assert_eq!(at(0x7364, 128, offset), v3, "{offset:#x}");
        }
        assert_eq!(at(0x7364, 0, 0x40800), 0x26);
        assert_eq!(at(0x7564, 0, 0x2012c), 0x100);
        assert_eq!(at(0x7364, 0, 0x2012c), 0);
    }

    #[test]
    fn only_engines_of_v2_cores_join_broadcasts() {
        let (window, engine) = initialised(0x7164, 19);
        assert_eq!(window.take_writes()[0], (engine.wrapper + 0x100, 0x1fff));
        assert_eq!(window.value(engine.wrapper + 0x104), 0xffff);
        let (window, engine) = initialised(0x7164, 33);
        assert!(window.take_writes().iter().all(|(offset, _)| *offset != engine.wrapper + 0x100));
        let (window, engine) = initialised(0x7164, 1);
        assert_eq!(window.value(engine.wrapper + 0x104), 0);
    }

    #[test]
    fn the_shared_error_controller_keeps_its_other_bits() {
        let hal = hal(0x7364);
        let engine = hal.engine(EngineId::new(33).unwrap()).unwrap();
        let window = FakeWindow::new();
        window.set(0x9c42_0090, 0xffff_0000);
        initialise(&window, &engine, &hal.tables().engine);
        assert_eq!(window.value(0x9c42_0090), 0xffff_0800);
        assert_eq!(window.value(0x9c42_00d0), 0x4);
        assert_eq!(window.take_reads(), [0x9413_b460, 0x9c42_0090, 0x9c42_00d0]);
    }

    #[test]
    fn traffic_of_a_whole_device() {
        let traffic = |device| {
            let hal = hal(device);
            let window = FakeWindow::new();
            for engine in hal.engines() {
                initialise(&window, &engine, &hal.tables().engine);
            }
            (window.take_writes().len(), window.take_reads().len())
        };
        assert_eq!(traffic(0x7164), (13_868, 34));
        assert_eq!(traffic(0x7364), (22_144, 388));
        assert_eq!(traffic(0x7564), (22_276, 520));
    }
}
