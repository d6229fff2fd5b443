//! axon in a Linux process.
