//! Globals of a UDMA unit and what engine initialisation writes to them (specification 02 §3.2,
//! §3.3, §3.5, §4).

/// M2S `data_rd_cfg`: beats of a data read, break on boundary.
pub(crate) const M2S_DATA_READ: (u64, u32) = (0x0_0118, 0x0001_0008);
/// M2S `desc_rd_cfg_3`: descriptors of a burst. The least and the most must be 8 alike.
pub(crate) const M2S_DESCRIPTOR_READ: (u64, u32) = (0x0_011c, 0x0001_0008);
/// M2S `ostand_cfg`; the value depends on the generation.
pub(crate) const M2S_OUTSTANDING: u64 = 0x0_0124;
/// M2S `state`: four 2-bit fields, 2 = aborted.
pub(crate) const M2S_STATE: u64 = 0x0_0200;
/// M2S `change_state`: a command.
pub(crate) const M2S_CHANGE_STATE: u64 = 0x0_0204;
/// M2S `err_log_mask`: 0 after reset.
pub(crate) const M2S_ERROR_LOG_MASK: u64 = 0x0_020c;
/// M2S: four words of the descriptor that failed.
pub(crate) const M2S_LOG: u64 = 0x0_0214;
/// M2S `cfg_len`: packet limit of 0xfffff bytes, length 0 means 64 KiB.
pub(crate) const M2S_LENGTH: (u64, u32) = (0x0_0254, 0x010f_ffff);
/// M2S `stream_cfg`: threshold mode, one beat.
pub(crate) const M2S_STREAM: (u64, u32) = (0x0_0258, 0x0000_0102);
/// M2S `desc_pref_cfg_2`: 64 descriptors of a packet and one of metadata; round robin.
pub(crate) const M2S_PACKET: (u64, u32) = (0x0_0304, 0x0001_0041);
/// M2S `desc_pref_cfg_3`: prefetch threshold 65, below the buffer of 128; bursts of 8 above it.
pub(crate) const M2S_PREFETCH: (u64, u32) = (0x0_0308, 0x0000_4181);
/// M2S `data_cfg`: depth of the data FIFO; the value depends on the generation.
pub(crate) const M2S_DATA: u64 = 0x0_0310;
/// M2S `cfg_application_ack`: no timeout.
pub(crate) const M2S_ACK: (u64, u32) = (0x0_0408, 0);

/// S2M `desc_rd_cfg_3`.
pub(crate) const S2M_DESCRIPTOR_READ: (u64, u32) = (0x2_011c, 0x0001_0008);
/// S2M `ostand_cfg_rd`; the value depends on the generation.
pub(crate) const S2M_READ_OUTSTANDING: u64 = 0x2_0124;
/// S2M `ostand_cfg_wr`.
pub(crate) const S2M_WRITE_OUTSTANDING: (u64, u32) = (0x2_0128, 0x4080_4080);
/// S2M `ostand_cfg_wr_2`: [9:0] data writes outstanding; V4.
pub(crate) const S2M_WRITE_OUTSTANDING_2: u64 = 0x2_012c;
/// The field of [`S2M_WRITE_OUTSTANDING_2`].
pub(crate) const S2M_WRITE_OUTSTANDING_2_FIELD: u32 = 0x3ff;
/// S2M `state`.
pub(crate) const S2M_STATE: u64 = 0x2_0200;
/// S2M `change_state`.
pub(crate) const S2M_CHANGE_STATE: u64 = 0x2_0204;
/// S2M `err_log_mask`: 0 after reset.
pub(crate) const S2M_ERROR_LOG_MASK: u64 = 0x2_020c;
/// S2M: four words of the descriptor that failed.
pub(crate) const S2M_LOG: u64 = 0x2_0214;
/// S2M `desc_pref_cfg_3`.
pub(crate) const S2M_PREFETCH: (u64, u32) = (0x2_0308, 0x0000_4181);
/// S2M completion: 16-byte descriptors, queue promotion.
pub(crate) const S2M_COMPLETION: (u64, u32) = (0x2_0380, 0x0000_1004);
/// S2M `cfg_application_ack`: no timeout.
pub(crate) const S2M_ACK: (u64, u32) = (0x2_038c, 0);

/// S2M `stream_cfg`: 0 disable, 4 flush, 8 stop prefetch when disabled and idle.
pub(crate) const S2M_STREAM: u64 = 0x2_0250;
/// [`S2M_STREAM`] of a stream that is off.
pub(crate) const S2M_STREAM_OFF: u32 = 1 << 0 | 1 << 4 | 1 << 8;

/// `change_state`: run.
pub(crate) const STATE_NORMAL: u32 = 0x1;
/// `change_state`: stop now, as on an error.
pub(crate) const STATE_ABORT: u32 = 0x4;
/// `change_state`: stop behind the current packet.
pub(crate) const STATE_DISABLE: u32 = 0x2;

/// Time limit of an AXI transaction in engine clocks.
pub(crate) const AXI_LIMIT: u64 = 0x3_a300;
/// [`AXI_LIMIT`]: about 118 ms.
pub(crate) const AXI_LIMIT_CLOCKS: u32 = 100_000_000;
/// [`AXI_LIMIT`]: off.
pub(crate) const AXI_LIMIT_OFF: u32 = u32::MAX;
/// Tables that turn AXI responses into errors: 6 of them, 0x40 apart.
pub(crate) const AXI_ERROR_TABLE: u64 = 0x3_a900;
/// Entries of the responses that are not OK, without and with a parity error.
pub(crate) const AXI_ERROR_ENTRIES: [u64; 6] = [0x04, 0x08, 0x0c, 0x24, 0x28, 0x2c];
/// Address and data register of each table's queue map: 6 pairs, 8 bytes apart.
pub(crate) const AXI_ERROR_CONTROL: u64 = 0x3_ab00;
/// Spare register whose bit 0 turns completion-head reporting off.
pub(crate) const SPARE: u64 = 0x3_b460;
/// Address selectors of queue *q* at this plus `q · 0x40`: transmit, then three of receive.
pub(crate) const ADDRESS_SELECT: u64 = 0x3_c400;
/// Distance of two queues' selectors.
pub(crate) const ADDRESS_SELECT_PITCH: u64 = 0x40;
/// All 64 address bits come from the descriptor.
pub(crate) const ADDRESS_SELECT_ALL: u32 = u32::MAX;
