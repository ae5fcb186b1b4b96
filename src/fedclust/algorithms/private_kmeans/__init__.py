"""K-means under differential privacy: a projection, a noisy histogram, and a few noisy iterations."""
