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
