"""What hides one party's numbers from the others: keys, masks, secret shares, and protocols that use them for sums."""
