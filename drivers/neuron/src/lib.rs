//! The driver of AWS Neuron accelerators, as async tasks (specification 01, 02, 03, 05).
#![no_std]
#![forbid(unsafe_code)]
