"""The demonstration: a simulated cluster, the real control plane, one fault, and a person who watches."""
