"""What hides one party's numbers from the others: keys, masks, secret shares, and the rewriting of sums into them."""
