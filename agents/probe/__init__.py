"""The probe: asks the NVIDIA driver from a process apart, so that a driver that hangs stops nobody else."""
