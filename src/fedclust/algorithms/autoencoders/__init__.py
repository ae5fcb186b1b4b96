"""Small autoencoders trained side by side, as FedCRef and DEC need them."""
