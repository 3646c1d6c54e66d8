"""The controllers of the embedded cluster, and kubelets that run no containers."""
