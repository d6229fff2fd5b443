//! A faithful emulated AWS Neuron PCI function.
