//! Finds or fetches QEMU, starts model and VM, collects the report.
