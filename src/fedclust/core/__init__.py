"""What every other part speaks: exact numbers, messages, effects and the loop that settles them."""
