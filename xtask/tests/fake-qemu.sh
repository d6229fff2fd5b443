#!/bin/sh
# Stands in for QEMU in the launcher's own tests: says it is one, then does what $FAKE_QEMU says.
case "$*" in
    --version) echo "QEMU emulator version 10.1.0" ;;
    "-device vfio-user-pci,help") echo "vfio-user-pci options:" ;;
    *) eval "$FAKE_QEMU" ;;
esac
