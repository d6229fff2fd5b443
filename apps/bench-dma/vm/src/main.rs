//! The copy benchmark of `apps/bench` as an image of its own: it watches the registers through a
//! machine of another type, so it has a second driver inside that the other benchmarks need not carry.

#![no_std]
#![no_main]

axon_boot::entry!(axon_bench::dma_main);
