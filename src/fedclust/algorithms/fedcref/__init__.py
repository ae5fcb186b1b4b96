"""FedCRef (paper 4): clusters refined by autoencoders that sites exchange."""
