"""Gaussian mixtures by exact federated EM."""
