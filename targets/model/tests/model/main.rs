//! The function from outside: raw register writes and raw descriptors, as a driver would make them.

mod bench;
mod bringup;
mod causes;
mod copies;
mod device;
mod faults;
mod mailbox;
mod notifications;
mod oracle;
mod resets;
mod rings;
